//! The fill of a resource: the load that its pipes may offer.

/// Part of its capacity at which a resource is used as planned. More means that it is full.
const PLANNED: f64 = 0.985;

/// Minimum efficiency of the pipes of a resource that is not full, even if it has more than its capacity.
const NOT_FULL: f64 = 0.95;

/// Minimum efficiency of the pipes of a resource for which a low load is due to too few connections.
const EFFICIENT: f64 = 0.9;

/// Part of its capacity above which a resource explains the contention of its pipes.
const NEARLY_FULL: f64 = 0.93;

/// Maximum efficiency of the pipes of a resource whose connections cost goodput.
const CONTENDED: f64 = 0.88;

/// Maximum change of a fill in a period, its range, and its maximum if the capacity is exceeded by efficient pipes.
const STEP: f64 = 0.02;
const RANGE: (f64, f64) = (0.5, 1.3);
const HIGHEST: f64 = 2.0;

/// Part of the offered load of a resource that must be there before its fill changes.
const OFFERED: f64 = 0.93;

/// The load of a resource in a period.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Load {
    /// Bytes per second.
    pub(super) rate: f64,
    /// The same if no connection was contended.
    pub(super) offered: f64,
}

impl Load {
    /// Returns the rate / the rate without contention.
    pub(super) fn efficiency(&self) -> f64 {
        if self.offered > 0.0 { self.rate / self.offered } else { 1.0 }
    }

    /// Returns whether the resource has no free capacity.
    pub(super) fn is_full(&self, capacity: f64) -> bool {
        self.rate >= NEARLY_FULL * capacity
    }

    /// Returns whether the connections of the resource cost goodput. No pipe may get more of them then: pipes whose
    /// connections are slow would take what the others lose.
    pub(super) fn is_contended(&self, capacity: f64) -> bool {
        self.efficiency() < CONTENDED && self.offered > OFFERED * capacity && !self.is_full(capacity)
    }
}

/// Returns the next fill of a resource. `may_exceed` says whether the capacity may be too low.
pub(super) fn next_fill(fill: f64, load: &Load, capacity: f64, may_exceed: bool) -> f64 {
    let (lowest, highest) = RANGE;
    let (part, efficiency) = (load.rate / capacity, load.efficiency());
    match () {
        () if load.offered == 0.0 => 1.0,
        () if load.offered <= OFFERED * fill * capacity => fill,
        () if efficiency > NOT_FULL && part >= PLANNED && may_exceed => (fill * (1.0 + STEP)).min(HIGHEST),
        () if part >= PLANNED => (fill * (1.0 - STEP)).max(lowest),
        () if efficiency > EFFICIENT && fill < highest => fill * (PLANNED / part).min(1.0 + STEP),
        () => fill,
    }
}
