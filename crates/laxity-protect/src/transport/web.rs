//! TLS for HTTP with the site's keys. The TLS of ureq takes no list of revoked certificates.

use std::io::{self, Read as _, Write as _};
use std::sync::Arc;

use rustls::pki_types::ServerName;
use rustls::{ClientConfig, ClientConnection, StreamOwned};
use ureq::Error;
use ureq::unversioned::transport::{
    Buffers, ConnectionDetails, Connector, Either, LazyBuffers, NextTimeout, Transport,
    TransportAdapter,
};

/// Encrypts connections for `https`, on which both sides prove who they are.
#[derive(Debug, Clone)]
pub struct Tls(pub(super) Arc<ClientConfig>);

impl<Plain: Transport> Connector<Plain> for Tls {
    type Out = Either<Plain, Encrypted>;

    fn connect(
        &self,
        details: &ConnectionDetails,
        plain: Option<Plain>,
    ) -> Result<Option<Self::Out>, Error> {
        let Some(plain) = plain else { return Ok(None) };
        if !details.needs_tls() {
            return Ok(Some(Either::A(plain)));
        }
        let host = details.uri.host().unwrap_or_default();
        let host = host.trim_matches(['[', ']']).to_string();
        let name = ServerName::try_from(host).map_err(io::Error::other)?;
        let tls = ClientConnection::new(self.0.clone(), name).map_err(io::Error::other)?;
        let mut below = TransportAdapter::new(plain.boxed(), details.current_time.clone());
        below.set_timeout(details.timeout);
        let mut stream = StreamOwned::new(tls, below);
        stream.conn.complete_io(&mut stream.sock)?;
        let (input, output) = (
            details.config.input_buffer_size(),
            details.config.output_buffer_size(),
        );
        let buffers = LazyBuffers::new(input, output);
        Ok(Some(Either::B(Encrypted { buffers, stream })))
    }
}

/// An encrypted connection.
pub struct Encrypted {
    buffers: LazyBuffers,
    stream: StreamOwned<ClientConnection, TransportAdapter>,
}

impl Transport for Encrypted {
    fn buffers(&mut self) -> &mut dyn Buffers {
        &mut self.buffers
    }

    fn transmit_output(&mut self, amount: usize, timeout: NextTimeout) -> Result<(), Error> {
        self.stream.sock.set_timeout(timeout);
        self.stream.write_all(&self.buffers.output()[..amount])?;
        Ok(())
    }

    fn await_input(&mut self, timeout: NextTimeout) -> Result<bool, Error> {
        self.stream.sock.set_timeout(timeout);
        let count = self.stream.read(self.buffers.input_append_buf())?;
        self.buffers.input_appended(count);
        Ok(count > 0)
    }

    fn is_open(&mut self) -> bool {
        self.stream.sock.get_mut().is_open()
    }

    fn is_tls(&self) -> bool {
        true
    }
}

impl std::fmt::Debug for Encrypted {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Encrypted").finish_non_exhaustive()
    }
}
