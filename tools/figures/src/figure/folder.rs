//! Writes files whole or not at all.

use std::{fmt::Display, fs, io::Write, path::PathBuf};

use tempfile::{Builder, NamedTempFile};

use super::products::Products;

/// The folder of the output.
pub(crate) struct Folder {
    path: PathBuf,
    /// `true` if it did not exist before.
    is_new: bool,
}

impl Folder {
    /// Creates the folder if it does not exist, and checks that it can be written.
    pub(crate) fn open(path: PathBuf) -> Result<Self, String> {
        let folder = Self {
            is_new: !path.exists(),
            path,
        };
        fs::create_dir_all(&folder.path).map_err(|error| folder.cannot("be made", &error))?;
        folder.temporary()?;
        Ok(folder)
    }

    /// Writes all files to temporary files, and only then renames them, so that no file is
    /// half-written.
    pub(crate) fn write(&self, products: &Products) -> Result<(), String> {
        let files = products.0.iter().map(|(name, bytes)| {
            let mut file = self.temporary()?;
            file.write_all(bytes)
                .and_then(|()| file.as_file().sync_all())
                .map_err(|error| self.cannot(&format!("take {name}"), &error))?;
            Ok((name, file))
        });
        for (name, file) in files.collect::<Result<Vec<_>, String>>()? {
            file.persist(self.path.join(name))
                .map_err(|error| self.cannot(&format!("take {name}"), &error.error))?;
        }
        Ok(())
    }

    /// Returns a file that is removed unless it is renamed.
    fn temporary(&self) -> Result<NamedTempFile, String> {
        let mut builder = Builder::new();
        builder.prefix(".figures-");
        #[cfg(unix)]
        let readable = std::os::unix::fs::PermissionsExt::from_mode(0o666);
        #[cfg(unix)]
        builder.permissions(readable);
        builder
            .tempfile_in(&self.path)
            .map_err(|error| self.cannot("be written", &error))
    }

    fn cannot(&self, what: &str, error: &dyn Display) -> String {
        let path = self.path.display();
        format!("the folder {path} cannot {what}: {error}; choose another one with --out")
    }
}

impl Drop for Folder {
    /// Leaves no empty folder behind where nothing was drawn.
    fn drop(&mut self) {
        if self.is_new {
            // Fails if the folder has files.
            let _ = fs::remove_dir(&self.path);
        }
    }
}
