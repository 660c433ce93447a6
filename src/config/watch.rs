//! The watch over a file.

use std::{fs, path::PathBuf, time::Duration};

use tokio::{runtime::Handle, task, time};

use super::limits::RouteLimits;
use crate::{
    AnyRule,
    error::Error,
    store::{Backend, NeverFails, Store},
};

/// The pause between two readings of a file.
// By reading, and not by events of the file system: a mounted configuration volume replaces a link
// to a folder, and network volumes have no events. A file of limits is small.
const PAUSE: Duration = Duration::from_millis(250);

impl<B: 'static, S, R, Out: 'static> RouteLimits<B, S, R, Out>
where
    S: Backend<Error: NeverFails> + Store<AnyRule> + Clone + Send + Sync + 'static,
    R: Clone + Send + Sync + 'static,
{
    /// Follows a file of TOML in the background, until the last clone and service of the layer is
    /// dropped: its content is taken half a second after it has changed, as by
    /// [`reload`](Self::reload).
    ///
    /// It may be replaced by renaming, as it should be, or be in a mounted configuration volume. A
    /// file that is written in place is taken when two readings of it, a quarter of a second apart,
    /// are the same. A file that is removed or cannot be read changes nothing, and is counted once.
    ///
    /// A program that reloads at a signal calls [`reload`](Self::reload) instead.
    ///
    /// # Errors
    ///
    /// Outside of a runtime of tokio.
    pub fn watch(&self, path: impl Into<PathBuf>) -> Result<(), Error> {
        let runtime = Handle::try_current().map_err(|_| {
            Error::new(
                "a file is watched outside of a runtime of tokio: expected a call inside of one; call `watch` in an async function",
            )
        })?;
        let (path, limits) = (path.into(), self.downgrade());
        runtime.spawn(async move {
            let (mut before, mut applied) = (None, None);
            while limits().is_some() {
                let read = path.clone();
                let reading = task::spawn_blocking(move || {
                    fs::read_to_string(&read).map_err(|error| error.to_string())
                });
                let reading = reading.await.ok();
                if let (Some(content), Some(limits)) = (&reading, limits())
                    && before == reading
                    && applied != reading
                {
                    match content {
                        // Its mistakes are noted there.
                        Ok(text) => drop(limits.reload(text)),
                        Err(error) => limits.note_failure(&format!(
                            "{}: cannot be read: {error}; expected a file of limits; put it there",
                            path.display()
                        )),
                    }
                    applied = reading.clone();
                }
                before = reading;
                time::sleep(PAUSE).await;
            }
        });
        Ok(())
    }
}
