//! The evaluation room through the library: packages, trust, the process and its protocol, the Python SDK. No engine.

mod agreement;
mod lab;
mod package;
mod process;
mod sdk;
