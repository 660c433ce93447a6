//! The header of the PROXY protocol, by which a balancer names the client of a connection.

use std::{io, net::SocketAddr};

use proxy_header::{Error, ParseConfig, ProxyHeader};
use tokio::io::{AsyncRead, AsyncReadExt};

/// The length of the shortest header, `PROXY UNKNOWN\r\n`.
const SHORTEST: usize = 15;

/// The maximum length, with the extensions that balancers add.
const LONGEST: usize = 4096;

/// The length of what all headers of version 2 have.
const FIXED: usize = 16;

/// The beginning of a header of version 2 from a balancer that is the client itself. The rest of it
/// is to be ignored, whatever it names.
const LOCAL: &[u8] = b"\r\n\r\n\0\r\nQUIT\n\x20";

/// Reads a header of version 1 or 2, and not a byte more. Returns the client's address; `None` if
/// the balancer itself is the client, such as for a health check.
pub(super) async fn read<Io: AsyncRead + Unpin>(io: &mut Io) -> io::Result<Option<SocketAddr>> {
    let mut header = Vec::new();
    let mut wanted = SHORTEST;
    // The length of a header of version 2.
    let mut whole = None;
    loop {
        let begun = header.len();
        header.resize(begun + wanted, 0);
        io.read_exact(&mut header[begun..]).await?;
        if let [b'\r', .., a, b] = *header
            && header.len() == FIXED
        {
            whole = Some(FIXED + usize::from(u16::from_be_bytes([a, b])));
        }
        let config = ParseConfig {
            include_tlvs: false,
            ..ParseConfig::default()
        };
        let is_whole = whole == Some(header.len());
        let parsed = match header.starts_with(LOCAL) {
            true if is_whole => return Ok(None),
            true => Err(Error::BufferTooShort),
            false => ProxyHeader::parse(&header, config),
        };
        wanted = match parsed {
            Ok((header, _)) => {
                let proxied = header.proxied_address();
                return Ok(proxied.map(|proxied| proxied.source));
            }
            // Version 1 ends with a line end.
            Err(Error::BufferTooShort) if !is_whole => {
                whole.map_or(1, |whole| whole - header.len())
            }
            Err(error) => {
                return Err(io::Error::new(
                    io::ErrorKind::InvalidData,
                    error.to_string(),
                ));
            }
        };
        if header.len() + wanted > LONGEST {
            return Err(io::Error::new(
                io::ErrorKind::InvalidData,
                "it is too long: expected at most 4096 bytes; let the balancer add fewer extensions",
            ));
        }
    }
}
