//! The header of the PROXY protocol, by which a balancer names the client of a connection.

use std::{io, net::SocketAddr};

use proxy_header::{Error, ParseConfig, ProxyHeader};
use tokio::io::{AsyncRead, AsyncReadExt};

/// The length of the shortest header, `PROXY UNKNOWN\r\n`.
const SHORTEST: usize = 15;

/// The maximum length, with the extensions that balancers add.
const LONGEST: usize = 4096;

/// Reads a header of version 1 or 2, and not a byte more. Returns the client's address; `None` if
/// the balancer itself is the client, such as for a health check.
pub(super) async fn read<Io: AsyncRead + Unpin>(io: &mut Io) -> io::Result<Option<SocketAddr>> {
    let mut header = Vec::new();
    let mut wanted = SHORTEST;
    loop {
        let begun = header.len();
        header.resize(begun + wanted, 0);
        io.read_exact(&mut header[begun..]).await?;
        let config = ParseConfig {
            include_tlvs: false,
            ..ParseConfig::default()
        };
        match ProxyHeader::parse(&header, config) {
            Ok((header, _)) => {
                let proxied = header.proxied_address();
                return Ok(proxied.map(|proxied| proxied.source));
            }
            Err(Error::BufferTooShort) => wanted = missing(&header),
            Err(error) => {
                return Err(io::Error::new(
                    io::ErrorKind::InvalidData,
                    error.to_string(),
                ));
            }
        }
        if header.len() + wanted > LONGEST {
            return Err(io::Error::new(
                io::ErrorKind::InvalidData,
                "it is too long: expected at most 4096 bytes; let the balancer add fewer extensions",
            ));
        }
    }
}

/// Returns the least number of bytes that follow an incomplete header.
fn missing(header: &[u8]) -> usize {
    match *header {
        // Version 2 ends its first 16 bytes with the length of the rest.
        [b'\r', .., a, b] if header.len() == 16 => usize::from(u16::from_be_bytes([a, b])).max(1),
        // Version 1 ends with a line end.
        _ => 1,
    }
}
