//! A port that accepts: one sign that a program is ready.

use std::net::{TcpStream, ToSocketAddrs};
use std::time::Duration;

use crate::values;

/// A port of this machine answers at once, or never.
const CONNECT: Duration = Duration::from_millis(500);

/// Where something is to listen.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Port {
    host: Option<String>,
    number: u16,
}

impl Port {
    /// Whether something listens there now.
    pub fn accepts(&self) -> bool {
        let hosts = match &self.host {
            Some(host) => vec![host.as_str()],
            None => vec!["127.0.0.1", "::1"],
        };
        let places = hosts
            .iter()
            .filter_map(|host| (*host, self.number).to_socket_addrs().ok());
        let mut places = places.flatten();
        places.any(|place| TcpStream::connect_timeout(&place, CONNECT).is_ok())
    }

    /// As it is written.
    pub fn shown(&self) -> String {
        match &self.host {
            Some(host) if host.contains(':') => format!("[{host}]:{}", self.number),
            Some(host) => format!("{host}:{}", self.number),
            None => self.number.to_string(),
        }
    }
}

/// From `PORT` or `HOST:PORT`.
///
/// # Errors
/// It is neither.
pub fn port(text: &str) -> Result<Port, String> {
    let takes = || values::takes("a port, 1 to 65535, with or without HOST: in front");
    let (host, number) = match text.rsplit_once(':') {
        Some((host, number)) => (Some(host.trim_matches(['[', ']'])), number),
        None => (None, text),
    };
    let number: u16 = number.parse().map_err(|_| takes())?;
    if number == 0 || host.is_some_and(str::is_empty) {
        return Err(takes());
    }
    Ok(Port {
        host: host.map(str::to_owned),
        number,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ports_have_a_host_or_not() {
        let of = |text: &str| port(text).ok().map(|port| port.shown());
        assert_eq!(of("8000").as_deref(), Some("8000"));
        assert_eq!(of("node:8000").as_deref(), Some("node:8000"));
        assert_eq!(of("[::1]:80").as_deref(), Some("[::1]:80"));
        for wrong in ["", "0", "65536", "x", ":80", "a:"] {
            assert_eq!(of(wrong), None, "{wrong}");
        }
    }
}
