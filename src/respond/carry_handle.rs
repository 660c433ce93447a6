//! HTTP requests carry charge handles in their extensions.

use http::Request;

use crate::charging::{CarryHandle, ChargeHandle};

impl<B> CarryHandle for Request<B> {
    fn carry(&mut self, handle: ChargeHandle) {
        let extensions = self.extensions_mut();
        let handle = match extensions.remove::<ChargeHandle>() {
            None => handle,
            Some(outer) => outer.beside(handle),
        };
        extensions.insert(handle);
    }
}
