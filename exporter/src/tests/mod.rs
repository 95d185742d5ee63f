//! What the exposition, its documents and the server promise.

mod compat;
mod documents;
mod explain;
mod http;
mod parse;
mod property;
mod ready;
mod roofline;
mod sample;
mod text;
mod tls;
