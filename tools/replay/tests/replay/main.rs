//! The program as a user runs it: its flags, its input and output, and its pictures.

mod calls;
mod capped;
mod compare;
mod dates;
mod dry_run;
mod figures;
mod files;
mod flags;
mod logs;
mod oracle;
mod others;
mod picture;
mod program;
