//! Tests of the server from outside, through sockets.

#[cfg(test)]
mod it {
    mod http;
    mod xrootd;
}
