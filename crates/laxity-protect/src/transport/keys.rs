//! Identities: each host has a key, and a certificate for its name signed by the site's own
//! authority.

use std::fs;
use std::io::{self, Read as _};
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use laxity_config::input;
use rustls::client::WebPkiServerVerifier;
use rustls::crypto::CryptoProvider;
use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, CertificateRevocationListDer, PrivateKeyDer, UnixTime};
use rustls::server::WebPkiClientVerifier;
use rustls::{ClientConfig, RootCertStore, ServerConfig, SupportedProtocolVersion};

use super::web::Tls;

/// File of the authority's certificate.
pub(super) const AUTHORITY: &str = "site.crt";
/// File of the authority's revocations, which need not exist.
pub(crate) const REVOKED: &str = "site.crl";
/// Mode bits that nobody but the owner may have on a key.
const OTHERS: u32 = 0o077;
/// Size limit of a key's file; the largest kinds in use have 4 KiB.
const KEY_BYTES_MAX: u64 = 64 << 10;
/// Size limit of a file of certificates or revocations.
pub(super) const PEM_BYTES_MAX: usize = 1 << 20;
/// Remaining validity below which a certificate should be renewed.
const RENEW_BEFORE: Duration = Duration::from_secs(30 * 24 * 3600);

/// Errors of a host's keys.
#[derive(Debug, thiserror::Error)]
pub enum KeysError {
    /// A file cannot be read or has wrong contents.
    #[error("cannot use {}: {reason}; `laxity protect keys` makes them", path.display())]
    File {
        /// Path of the file.
        path: PathBuf,
        /// Reason of the failure.
        reason: String,
    },
    /// The keys exist already.
    #[error("{} exists already and is not overwritten", .0.display())]
    There(PathBuf),
    /// The keys cannot be made or written.
    #[error("cannot make keys: {0}")]
    Make(String),
}

/// The identity of a host, and the authority by which it recognizes others. TLS 1.3 only, in both
/// directions.
#[derive(Debug, Clone)]
pub struct Keys {
    pub(super) client: Arc<ClientConfig>,
    pub(super) server: Arc<ServerConfig>,
    web: Tls,
    expires_soon: bool,
}

impl Keys {
    /// Reads the keys of a host from a directory, and the authority's revocations, if there are any,
    /// from another one, which may be the same.
    ///
    /// # Errors
    ///
    /// If one is missing or wrong, or somebody else may read the key.
    pub fn load(directory: &Path, host: &str, revocations: &Path) -> Result<Keys, KeysError> {
        let refused = |path: &Path, reason: String| KeysError::File {
            path: path.into(),
            reason,
        };
        let certificates = |name: &str| {
            let path = directory.join(name);
            let text = input::read(&path, PEM_BYTES_MAX)
                .map_err(|error| refused(&path, error.to_string()))?;
            let read = CertificateDer::pem_slice_iter(&text).collect::<Result<Vec<_>, _>>();
            match read {
                Ok(list) if !list.is_empty() => Ok(list),
                Ok(_) => Err(refused(&path, "it contains no certificate".into())),
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
        let pem = read_secret(&path).map_err(|reason| refused(&path, reason))?;
        let key = PrivateKeyDer::from_pem_slice(&pem)
            .map_err(|error| refused(&path, error.to_string()))?;
        let revoked = revoked(&revocations.join(REVOKED))?;
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let own = |error: rustls::Error| refused(&directory.join(&name), error.to_string());
        let roots = Arc::new(roots);
        let expires_soon = expires_soon(&provider, &roots, &chain)
            .map_err(|error| refused(&directory.join(&name), error.to_string()))?;
        let unusable = |error: String| refused(&authority, error);
        let verifier = WebPkiServerVerifier::builder_with_provider(roots.clone(), provider.clone())
            .with_crls(revoked.clone())
            .only_check_end_entity_revocation()
            .build()
            .map_err(|error| unusable(error.to_string()))?;
        let client = |versions: &[&'static SupportedProtocolVersion]| {
            ClientConfig::builder_with_provider(provider.clone())
                .with_protocol_versions(versions)
                .and_then(|builder| {
                    builder
                        .with_webpki_verifier(verifier.clone())
                        .with_client_auth_cert(chain.clone(), key.clone_key())
                })
                .map(Arc::new)
                .map_err(own)
        };
        // An etcd may be too old for TLS 1.3.
        let web = Tls(client(rustls::ALL_VERSIONS)?);
        let client = client(&[&rustls::version::TLS13])?;
        let verifier = WebPkiClientVerifier::builder_with_provider(roots, provider.clone())
            .with_crls(revoked)
            .only_check_end_entity_revocation()
            .build()
            .map_err(|error| unusable(error.to_string()))?;
        let server = ServerConfig::builder_with_provider(provider)
            .with_protocol_versions(&[&rustls::version::TLS13])
            .and_then(|builder| {
                builder
                    .with_client_cert_verifier(verifier)
                    .with_single_cert(chain, key)
            })
            .map_err(own)?;
        Ok(Keys {
            client,
            server: Arc::new(server),
            web,
            expires_soon,
        })
    }

    /// Whether the certificate ends within 30 days and should be renewed.
    pub fn expires_soon(&self) -> bool {
        self.expires_soon
    }

    /// TLS for HTTP: both sides prove their identity with certificates of the site.
    pub fn for_web(&self) -> Tls {
        self.web.clone()
    }
}

/// Reads a key's file, which is refused if other users may read it.
pub(super) fn read_secret(path: &Path) -> Result<Vec<u8>, String> {
    let told = |error: io::Error| error.to_string();
    let file = input::open(path).map_err(told)?;
    let found = file.metadata().map_err(told)?;
    if found.mode() & OTHERS != 0 {
        return Err(format!(
            "other users may read it (mode {:04o}); chmod 600 it, and renew it if someone may have read it",
            found.mode() & 0o7777
        ));
    }
    let mut secret = Vec::new();
    file.take(KEY_BYTES_MAX + 1)
        .read_to_end(&mut secret)
        .map_err(told)?;
    if secret.len() as u64 > KEY_BYTES_MAX {
        return Err(format!("it is longer than {KEY_BYTES_MAX} bytes"));
    }
    Ok(secret)
}

/// The authority's revocations; empty if there is no file.
fn revoked(path: &Path) -> Result<Vec<CertificateRevocationListDer<'static>>, KeysError> {
    if fs::symlink_metadata(path).is_err_and(|error| error.kind() == io::ErrorKind::NotFound) {
        return Ok(Vec::new());
    }
    let refused = |reason: String| KeysError::File {
        path: path.into(),
        reason,
    };
    let text = input::read(path, PEM_BYTES_MAX).map_err(|error| refused(error.to_string()))?;
    let lists = CertificateRevocationListDer::pem_slice_iter(&text).collect::<Result<Vec<_>, _>>();
    match lists {
        Ok(lists) if lists.is_empty() => Err(refused("it contains no list".into())),
        lists => lists.map_err(|error| refused(error.to_string())),
    }
}

/// Whether a currently valid certificate ends soon.
///
/// # Errors
///
/// If it does not hold now: it has ended, or another authority has signed it.
fn expires_soon(
    provider: &Arc<CryptoProvider>,
    roots: &RootCertStore,
    chain: &[CertificateDer],
) -> Result<bool, webpki::Error> {
    let (end, between) = chain.split_first().ok_or(webpki::Error::BadDer)?;
    let certificate = webpki::EndEntityCert::try_from(end)?;
    let holds_at = |at: SystemTime| {
        let at = UnixTime::since_unix_epoch(at.duration_since(UNIX_EPOCH).unwrap_or_default());
        let algorithms = provider.signature_verification_algorithms.all;
        let usage = webpki::KeyUsage::client_auth();
        certificate
            .verify_for_usage(algorithms, &roots.roots, between, at, usage, None, None)
            .map(drop)
    };
    let now = SystemTime::now();
    holds_at(now)?;
    Ok(holds_at(now + RENEW_BEFORE).is_err())
}
