//! Tests of the program from outside.

#[cfg(test)]
mod it {
    mod idle;
    mod program;
}
