//! Tests of the program from outside.

#[cfg(test)]
mod it {
    mod copying;
    mod idle;
    mod program;
    mod removing;
}
