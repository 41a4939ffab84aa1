//! Tests of the program from outside.

#[cfg(test)]
mod it {
    mod copying;
    mod ending;
    mod idle;
    mod program;
    mod removing;
    mod syncing;
    mod third_party;
    mod wan;
}
