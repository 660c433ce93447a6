//! Empty: `trybuild` takes the features of a library.
