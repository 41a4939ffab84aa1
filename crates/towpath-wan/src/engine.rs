//! The thread that carries packets: it reads the hosts' TUN devices, passes packets to the [`Network`], and writes
//! arrived packets.
//!
//! Each round writes due packets, reads some packets of each device, and processes requests. If no device had packets,
//! it sleeps until the next packet is due, a device becomes readable, or a request arrives. There is no busy loop, and
//! no decision is made here.

use std::{
    io, mem,
    num::NonZeroU64,
    os::fd::OwnedFd,
    sync::{Arc, mpsc},
    thread,
    time::Duration,
};

use rustix::{
    buffer::spare_capacity,
    event::{EventfdFlags, PollFd, PollFlags, eventfd, poll},
    io::Errno,
    process::setpriority_process,
    thread::set_current_timer_slack,
};
use serde::{Deserialize, Serialize};

use crate::{
    clock::{now_ns, timespec},
    error::Error,
    link::{LinkCounters, LinkSettings},
    network::{HostIndex, LinkName, Network, NetworkCounters},
    segment::MAX_BYTES,
};

/// Minimum size in bytes of a packet that keeps its read buffer. Smaller packets are copied, because acknowledgements
/// in flight would each hold the memory of a super-packet.
const MIN_WHOLE_BYTES: usize = MAX_BYTES / 2;

/// Maximum number of packets read from one device before other devices and due packets.
const READS_IN_A_ROW: usize = 32;

/// The engine wakes before a packet is due by its recent wake-up latency, but by no more than this: an idle virtual
/// machine takes 100 to 300 µs from the timer to the thread. It spends the rest polling the devices.
const MAX_LEAD_NS: u64 = 200_000;

/// Increase of the minimum timer latency per wake-up, so that the estimate follows a machine that becomes slower.
const LATENESS_CREEP_NS: u64 = 5_000;

/// Highest scheduling priority: the engine needs little CPU time, but without delay.
const NICENESS: i32 = -20;

/// Settings and counters of a link.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct LinkReport {
    /// The link.
    pub link: LinkName,
    /// Its current settings.
    pub settings: LinkSettings,
    /// Counters of its packets.
    pub counters: LinkCounters,
}

/// Counters that show whether the emulator keeps up with the emulated network.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct EngineCounters {
    /// Packets delivered to hosts, super-packets counted once.
    pub delivered_packets: u64,
    /// Sum of the delivery delays beyond the due time: mean lateness times the number of packets.
    pub late_ns: u64,
    /// Maximum lateness of a packet.
    pub latest_ns: u64,
    /// Packets that a host's kernel rejected.
    pub refused_packets: u64,
}

/// Settings and counters of links, network and engine.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct NetworkReport {
    /// Pairs, followed by access links that are not transparent.
    pub links: Vec<LinkReport>,
    /// Packets that did not reach a link.
    pub network: NetworkCounters,
    /// Whether the emulator keeps up: unless lateness is far below the delays, results reflect this machine more than
    /// the link.
    pub engine: EngineCounters,
    /// Hosts whose device was deleted from inside; they are disconnected.
    #[serde(default)]
    pub cut_off: Vec<HostIndex>,
}

/// A request to the engine, with the channel for the response.
enum Request {
    Set(LinkName, Box<LinkSettings>, mpsc::Sender<bool>),
    Outage(LinkName, Duration, mpsc::Sender<bool>),
    Report(mpsc::Sender<NetworkReport>),
}

/// The running engine thread, which ends when this is dropped.
#[derive(Debug)]
pub(crate) struct Engine {
    /// `None` while it is being dropped.
    requests: Option<mpsc::Sender<Request>>,
    wake: Arc<OwnedFd>,
    thread: Option<thread::JoinHandle<()>>,
}

impl Engine {
    /// Starts carrying packets between `devices`, one for each host in order.
    pub(crate) fn start(network: Network, devices: Vec<OwnedFd>) -> Result<Self, Error> {
        let wake =
            eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK).map_err(Error::kernel("make an eventfd"))?;
        let wake = Arc::new(wake);
        let (requests, asked) = mpsc::channel();
        let event_loop = EventLoop {
            network,
            devices: devices.into_iter().map(Some).collect(),
            wake: Arc::clone(&wake),
            asked,
            room: Vec::with_capacity(MAX_BYTES),
            lead_ns: 0,
            least_late_ns: 0,
            waking_ns: 0,
            counters: EngineCounters::default(),
        };
        let thread = thread::Builder::new().name("wan-engine".to_owned()).spawn(move || event_loop.run());
        let thread = thread.map_err(Error::kernel("start the engine's thread"))?;
        Ok(Self { requests: Some(requests), wake, thread: Some(thread) })
    }

    /// Changes the settings of a link; returns false if it does not exist.
    pub(crate) fn set(&self, link: LinkName, settings: LinkSettings) -> Result<bool, Error> {
        self.ask(|answer| Request::Set(link, Box::new(settings), answer))
    }

    /// Starts an outage of a link; returns false if it does not exist.
    pub(crate) fn outage(&self, link: LinkName, length: Duration) -> Result<bool, Error> {
        self.ask(|answer| Request::Outage(link, length, answer))
    }

    pub(crate) fn report(&self) -> Result<NetworkReport, Error> {
        self.ask(Request::Report)
    }

    fn ask<T>(&self, request: impl FnOnce(mpsc::Sender<T>) -> Request) -> Result<T, Error> {
        let (answer, answered) = mpsc::channel();
        self.requests.as_ref().ok_or(Error::Ended)?.send(request(answer)).map_err(|_| Error::Ended)?;
        wake(&self.wake);
        answered.recv().map_err(|_| Error::Ended)
    }
}

impl Drop for Engine {
    fn drop(&mut self) {
        self.requests = None;
        wake(&self.wake);
        if let Some(thread) = self.thread.take() {
            // A panic was already printed.
            let _ = thread.join();
        }
    }
}

fn wake(eventfd: &OwnedFd) {
    // Fails only if the counter is full, and then the engine is awake anyway.
    let _ = rustix::io::write(eventfd, &1_u64.to_ne_bytes());
}

/// Takes the packet read into `room`, and leaves `room` empty.
fn take_out(room: &mut Vec<u8>) -> Vec<u8> {
    if room.len() >= MIN_WHOLE_BYTES {
        return mem::replace(room, Vec::with_capacity(MAX_BYTES));
    }
    let packet = room.as_slice().to_vec();
    room.clear();
    packet
}

/// State of the engine thread.
struct EventLoop {
    network: Network,
    /// One per host in order; `None` for a deleted device.
    devices: Vec<Option<OwnedFd>>,
    wake: Arc<OwnedFd>,
    asked: mpsc::Receiver<Request>,
    /// Empty buffer with capacity for one packet.
    room: Vec<u8>,
    /// Smoothed latency of timer wake-ups.
    lead_ns: u64,
    /// Minimum recent timer latency: the latency of any wake-up.
    least_late_ns: u64,
    /// Estimated time between the arrival of the packet that woke this thread and its read; zero if the thread was
    /// awake.
    waking_ns: u64,
    counters: EngineCounters,
}

impl EventLoop {
    fn run(mut self) {
        // Both may fail in a container; packets are then slightly late, which the counters report.
        let _ = set_current_timer_slack(NonZeroU64::new(1));
        let _ = setpriority_process(None, NICENESS);
        loop {
            self.deliver();
            let was_idle = !self.collect();
            if !self.answer() {
                return;
            }
            if was_idle && self.sleep().is_err() {
                return;
            }
        }
    }

    /// Writes due packets.
    fn deliver(&mut self) {
        loop {
            let now_ns = now_ns();
            let Some(delivery) = self.network.next_due(now_ns) else { return };
            let late_ns = now_ns - delivery.at_ns;
            self.counters.delivered_packets += 1;
            self.counters.late_ns += late_ns;
            self.counters.latest_ns = self.counters.latest_ns.max(late_ns);
            let device = self.devices.get(delivery.host.at()).and_then(Option::as_ref);
            if device.is_none_or(|device| rustix::io::write(device, delivery.packet.bytes()).is_err()) {
                self.counters.refused_packets += 1;
            }
        }
    }

    /// Reads some packets of each device; returns whether there were any.
    fn collect(&mut self) -> bool {
        let mut any = false;
        for index in 0..self.devices.len() {
            for _ in 0..READS_IN_A_ROW {
                let Some(host) = self.network.hosts().get(index).copied() else { break };
                if !self.collect_one(host) {
                    break;
                }
                any = true;
            }
        }
        self.waking_ns = 0;
        any
    }

    fn collect_one(&mut self, host: HostIndex) -> bool {
        let Some(place) = self.devices.get_mut(host.at()) else { return false };
        let Some(device) = place else { return false };
        match rustix::io::read(device, spare_capacity(&mut self.room)) {
            Ok(_) => {
                let packet = take_out(&mut self.room);
                self.network.arrive(now_ns() - self.waking_ns, host, packet);
                true
            }
            Err(Errno::BADFD) => {
                // The device was deleted from inside the host. Polling it would end each sleep immediately.
                *place = None;
                false
            }
            // Other errors: the device was set down from inside the host, and delivers no packets.
            Err(_) => false,
        }
    }

    /// Processes requests; returns false once all senders are gone.
    fn answer(&mut self) -> bool {
        loop {
            // The client may be gone.
            match self.asked.try_recv() {
                Ok(Request::Set(link, settings, answer)) => {
                    let link = self.network.link_mut(link);
                    let _ = answer.send(link.map(|link| link.set(*settings)).is_some());
                }
                Ok(Request::Outage(link, length, answer)) => {
                    let begin_ns = now_ns();
                    let end_ns = begin_ns.saturating_add(u64::try_from(length.as_nanos()).unwrap_or(u64::MAX));
                    let link = self.network.link_mut(link);
                    let _ = answer.send(link.map(|link| link.add_outage(begin_ns..end_ns)).is_some());
                }
                Ok(Request::Report(answer)) => {
                    let _ = answer.send(self.report());
                }
                Err(mpsc::TryRecvError::Empty) => return true,
                Err(mpsc::TryRecvError::Disconnected) => return false,
            }
        }
    }

    fn report(&self) -> NetworkReport {
        let links = self.network.links().map(|(link, settings, counters)| LinkReport {
            link,
            settings: settings.clone(),
            counters: *counters,
        });
        let hosts = self.network.hosts().iter().zip(&self.devices);
        let cut_off = hosts.filter(|(_, device)| device.is_none()).map(|(host, _)| *host).collect();
        NetworkReport { links: links.collect(), network: self.network.counters(), engine: self.counters, cut_off }
    }

    /// Waits for a packet from a host, the next due time, or a request.
    fn sleep(&mut self) -> io::Result<()> {
        let wake_ns = self.network.next_ns().map(|next_ns| next_ns.saturating_sub(self.lead_ns));
        let timeout_ns = wake_ns.map(|wake_ns| wake_ns.saturating_sub(now_ns()));
        if timeout_ns == Some(0) {
            return Ok(());
        }
        let timeout = timeout_ns.map(timespec);
        let slept_from_ns = now_ns();
        let mut waited = Vec::with_capacity(self.devices.len() + 1);
        waited.push(PollFd::new(&*self.wake, PollFlags::IN));
        waited.extend(self.devices.iter().flatten().map(|device| PollFd::new(device, PollFlags::IN)));
        match poll(&mut waited, timeout.as_ref()) {
            Ok(0) => {
                let late_ns = now_ns().saturating_sub(wake_ns.unwrap_or(u64::MAX)).min(MAX_LEAD_NS);
                self.lead_ns = (self.lead_ns * 7 + late_ns) / 8;
                self.least_late_ns = late_ns.min(self.least_late_ns + LATENESS_CREEP_NS);
            }
            // The packet arrived while this thread slept.
            Ok(_) => self.waking_ns = self.least_late_ns.min(now_ns() - slept_from_ns),
            Err(Errno::INTR) => {}
            Err(error) => return Err(error.into()),
        }
        if waited.first().is_some_and(|wake| !wake.revents().is_empty()) {
            // Only the wake-up counts, not its number.
            let _ = rustix::io::read(&*self.wake, &mut [0; 8]);
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_small_packet_holds_no_more_than_it_is() {
        let mut room = Vec::with_capacity(MAX_BYTES);
        room.extend_from_slice(&[7; 60]);
        let small = take_out(&mut room);
        assert_eq!((small.as_slice(), small.capacity()), (&[7; 60][..], 60));
        assert_eq!((room.len(), room.capacity()), (0, MAX_BYTES));
        room.resize(MAX_BYTES, 8);
        assert_eq!(take_out(&mut room), [8; MAX_BYTES]);
        assert_eq!((room.len(), room.capacity()), (0, MAX_BYTES));
    }
}
