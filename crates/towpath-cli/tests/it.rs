//! Tests of the program from outside.

#[cfg(test)]
mod it {
    mod copying;
    mod ending;
    mod events;
    mod idle;
    mod missing;
    mod probing;
    mod program;
    mod removing;
    mod resuming;
    mod several;
    mod syncing;
    mod terminal;
    mod third_party;
    mod times;
    mod wan;
}
