//! Tests of the program from outside.

#[cfg(test)]
mod it {
    mod copying;
    mod ending;
    mod idle;
    mod missing;
    mod program;
    mod removing;
    mod resuming;
    mod several;
    mod syncing;
    mod third_party;
    mod times;
    mod wan;
}
