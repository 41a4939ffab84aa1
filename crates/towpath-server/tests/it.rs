//! Tests of the server from outside, through sockets.

#[cfg(test)]
mod it {
    mod copier;
    mod http;
    mod xrootd;
}
