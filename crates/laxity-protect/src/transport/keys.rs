//! Who is who: each host has a key and a certificate that the site's own authority has signed for its name.

use std::fs::{self, OpenOptions};
use std::io::{self, Write as _};
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use rcgen::{
    BasicConstraints, CertificateParams, ExtendedKeyUsagePurpose, IsCa, Issuer, KeyPair,
    KeyUsagePurpose,
};
use rustls::crypto::CryptoProvider;
use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::server::WebPkiClientVerifier;
use rustls::{ClientConfig, RootCertStore, ServerConfig};
use ureq::tls::{Certificate, ClientCert, PrivateKey, RootCerts, TlsConfig};

const AUTHORITY: &str = "site.crt";
const AUTHORITY_KEY: &str = "site.key";

/// What is wrong with a host's keys.
#[derive(Debug, thiserror::Error)]
pub enum KeysError {
    /// A file cannot be read, or is not what it should be.
    #[error("cannot use {}: {reason}; `laxity protect keys` makes them", path.display())]
    File {
        /// The file.
        path: PathBuf,
        /// Why.
        reason: String,
    },
    /// Keys that are there already.
    #[error("{} is there already; a new one would make the hosts' certificates worthless, so remove it first", .0.display())]
    There(PathBuf),
    /// They cannot be made or written.
    #[error("cannot make keys: {0}")]
    Make(String),
}

/// What a host proves with who it is, and knows the others by. TLS 1.3 only, in both directions.
#[derive(Debug, Clone)]
pub struct Keys {
    pub(super) client: Arc<ClientConfig>,
    pub(super) server: Arc<ServerConfig>,
    web: TlsConfig,
}

impl Keys {
    /// Reads the keys of a host from a directory.
    ///
    /// # Errors
    ///
    /// If one is missing or wrong.
    pub fn load(directory: &Path, host: &str) -> Result<Keys, KeysError> {
        let refused = |path: &Path, reason: String| KeysError::File {
            path: path.into(),
            reason,
        };
        let certificates = |name: &str| {
            let path = directory.join(name);
            let read = CertificateDer::pem_file_iter(&path)
                .and_then(Iterator::collect::<Result<Vec<_>, _>>);
            match read {
                Ok(list) if !list.is_empty() => Ok(list),
                Ok(_) => Err(refused(&path, "there is no certificate in it".into())),
                Err(error) => Err(refused(&path, error.to_string())),
            }
        };
        let authority = directory.join(AUTHORITY);
        let mut roots = RootCertStore::empty();
        for certificate in certificates(AUTHORITY)? {
            roots
                .add(certificate)
                .map_err(|error| refused(&authority, error.to_string()))?;
        }
        let name = format!("{host}.crt");
        let chain = certificates(&name)?;
        let path = directory.join(format!("{host}.key"));
        let key = || {
            PrivateKeyDer::from_pem_file(&path).map_err(|error| refused(&path, error.to_string()))
        };
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let web = web(&provider, &certificates(AUTHORITY)?, &chain, &path)
            .map_err(|reason| refused(&path, reason))?;
        let own = |error: rustls::Error| refused(&directory.join(&name), error.to_string());
        let roots = Arc::new(roots);
        let client = ClientConfig::builder_with_provider(provider.clone())
            .with_protocol_versions(&[&rustls::version::TLS13])
            .and_then(|builder| {
                builder
                    .with_root_certificates(roots.clone())
                    .with_client_auth_cert(chain.clone(), key().map_err(other)?)
            })
            .map_err(own)?;
        let verifier = WebPkiClientVerifier::builder_with_provider(roots, provider.clone())
            .build()
            .map_err(|error| refused(&authority, error.to_string()))?;
        let server = ServerConfig::builder_with_provider(provider)
            .with_protocol_versions(&[&rustls::version::TLS13])
            .and_then(|builder| {
                builder
                    .with_client_cert_verifier(verifier)
                    .with_single_cert(chain, key().map_err(other)?)
            })
            .map_err(own)?;
        Ok(Keys {
            client: Arc::new(client),
            server: Arc::new(server),
            web,
        })
    }

    /// The same for HTTP: both sides prove who they are with certificates of the site.
    pub fn for_web(&self) -> TlsConfig {
        self.web.clone()
    }
}

fn web(
    provider: &Arc<CryptoProvider>,
    roots: &[CertificateDer],
    chain: &[CertificateDer],
    key: &Path,
) -> Result<TlsConfig, String> {
    let owned = |certificates: &[CertificateDer]| -> Vec<Certificate<'static>> {
        let each = certificates.iter();
        each.map(|certificate| Certificate::from_der(certificate).to_owned())
            .collect()
    };
    let pem = fs::read(key).map_err(|error| error.to_string())?;
    let key = PrivateKey::from_pem(&pem).map_err(|error| error.to_string())?;
    Ok(TlsConfig::builder()
        .unversioned_rustls_crypto_provider(provider.clone())
        .root_certs(RootCerts::Specific(Arc::new(owned(roots))))
        .client_cert(Some(ClientCert::new_with_certs(&owned(chain), key)))
        .build())
}

fn other(error: KeysError) -> rustls::Error {
    rustls::Error::General(error.to_string())
}

/// Makes an authority for a site, and for each `(name, addresses)` a key and a certificate, into a directory: a file's
/// name, and what others know its owner by.
///
/// # Errors
///
/// If there is an authority already, or something cannot be written.
pub fn make(directory: &Path, owners: &[(String, Vec<String>)]) -> Result<(), KeysError> {
    let made = |error: rcgen::Error| KeysError::Make(error.to_string());
    let written = |error: io::Error| KeysError::Make(format!("{}: {error}", directory.display()));
    fs::create_dir_all(directory).map_err(written)?;
    let authority = directory.join(AUTHORITY);
    if authority.exists() {
        return Err(KeysError::There(authority));
    }
    let mut params = CertificateParams::new(Vec::new()).map_err(made)?;
    params.is_ca = IsCa::Ca(BasicConstraints::Constrained(0));
    params.key_usages = vec![KeyUsagePurpose::KeyCertSign];
    let authority_key = KeyPair::generate().map_err(made)?;
    let certificate = params.self_signed(&authority_key).map_err(made)?;
    let issuer = Issuer::new(params, authority_key);
    for (name, known_as) in owners {
        let mut params = CertificateParams::new(known_as.clone()).map_err(made)?;
        params.extended_key_usages = vec![
            ExtendedKeyUsagePurpose::ServerAuth,
            ExtendedKeyUsagePurpose::ClientAuth,
        ];
        let key = KeyPair::generate().map_err(made)?;
        let certificate = params.signed_by(&key, &issuer).map_err(made)?;
        write_secret(&directory.join(format!("{name}.key")), &key.serialize_pem())
            .map_err(written)?;
        fs::write(directory.join(format!("{name}.crt")), certificate.pem()).map_err(written)?;
    }
    write_secret(
        &directory.join(AUTHORITY_KEY),
        &issuer.key().serialize_pem(),
    )
    .map_err(written)?;
    fs::write(authority, certificate.pem()).map_err(written)
}

fn write_secret(path: &Path, text: &str) -> io::Result<()> {
    const OWNER_ONLY: u32 = 0o600;
    let mut options = OpenOptions::new();
    let mut file = options
        .write(true)
        .create(true)
        .truncate(true)
        .mode(OWNER_ONLY)
        .open(path)?;
    file.write_all(text.as_bytes())
}
