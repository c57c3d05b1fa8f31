//! An agent of our own, which talks to a model without any CLI.
