//! A site's certificate authority, which makes, renews and revokes keys and certificates of hosts.
//!
//! Its directory has `site.crt` and `site.key`, `NAME.crt` and `NAME.key` for each host, and, once
//! a certificate was taken back, `site.crl` with the list of all of these and `revoked/` with the
//! certificates themselves.

use std::fs::{self, File, OpenOptions};
use std::io::{self, Write as _};
use std::os::unix::fs::{DirBuilderExt as _, OpenOptionsExt as _};
use std::path::Path;
use std::time::{Duration, SystemTime};

use laxity_config::input;
use rcgen::{
    BasicConstraints, CertificateParams, CertificateRevocationListParams, DistinguishedName,
    DnType, ExtendedKeyUsagePurpose, IsCa, Issuer, KeyIdMethod, KeyPair, KeyUsagePurpose,
    RevocationReason, RevokedCertParams, SerialNumber,
};
use rustls::pki_types::CertificateDer;
use rustls::pki_types::pem::PemObject as _;

use super::keys::{AUTHORITY, KeysError, PEM_BYTES_MAX, REVOKED, read_secret};

const AUTHORITY_KEY: &str = "site.key";
/// Directory of revoked certificates.
const REVOKED_CERTIFICATES: &str = "revoked";
const DAY: Duration = Duration::from_secs(24 * 3600);
/// Time by which a certificate is valid earlier than its making, since clocks of hosts may differ.
const BEFORE: Duration = DAY;
/// Validity of a host's certificate.
const HOST_DAYS: u32 = 2 * 365;
/// Validity of the authority's certificate.
const AUTHORITY_DAYS: u32 = 10 * 365;
const OWNER_ONLY: u32 = 0o600;
const EVERYBODY_READS: u32 = 0o644;
const DIRECTORY_MODE: u32 = 0o700;

/// An owner: the name of its files, and the names in its certificate.
pub type Owner = (String, Vec<String>);

/// Makes an authority for a site, and a key and a certificate for each owner, in a directory.
///
/// # Errors
///
/// If one of the files is there already, or something cannot be written. Nothing is written over.
pub fn make(directory: &Path, owners: &[Owner]) -> Result<(), KeysError> {
    fs::DirBuilder::new()
        .recursive(true)
        .mode(DIRECTORY_MODE)
        .create(directory)
        .map_err(written(directory))?;
    let names = owners
        .iter()
        .flat_map(|(name, _)| [key_of(name), certificate_of(name)]);
    for name in [AUTHORITY.into(), AUTHORITY_KEY.into()]
        .into_iter()
        .chain(names)
    {
        let path = directory.join(name);
        if fs::symlink_metadata(&path).is_ok() {
            return Err(KeysError::There(path));
        }
    }
    let key = KeyPair::generate().map_err(made)?;
    let params = authority()?;
    let certificate = params.self_signed(&key).map_err(made)?;
    write(
        &directory.join(AUTHORITY_KEY),
        OWNER_ONLY,
        &key.serialize_pem(),
    )?;
    write(
        &directory.join(AUTHORITY),
        EVERYBODY_READS,
        &certificate.pem(),
    )?;
    let issuer = Issuer::new(params, key);
    for owner in owners {
        issue(directory, &issuer, owner)?;
    }
    Ok(())
}

/// Replaces the key and the certificate of each owner. The old certificates stay valid until their
/// end unless they are revoked.
///
/// # Errors
///
/// If the authority's key is not there, or something cannot be written.
pub fn renew(directory: &Path, owners: &[Owner]) -> Result<(), KeysError> {
    let issuer = open(directory)?;
    owners
        .iter()
        .try_for_each(|owner| issue(directory, &issuer, owner))
}

/// Revokes the certificates of these names: hosts with the new `site.crl` refuse them. The files of
/// the names are moved away, so that [`renew`] makes new ones.
///
/// # Errors
///
/// If there is no such certificate, or the list cannot be written.
pub fn revoke(directory: &Path, names: &[String]) -> Result<(), KeysError> {
    let issuer = open(directory)?;
    let away = directory.join(REVOKED_CERTIFICATES);
    fs::DirBuilder::new()
        .recursive(true)
        .mode(DIRECTORY_MODE)
        .create(&away)
        .map_err(written(&away))?;
    for name in names {
        let path = directory.join(certificate_of(name));
        let serial = serial_of(&path)?;
        let kept = away.join(format!("{name}-{}.crt", hexadecimal(&serial)));
        fs::rename(&path, &kept).map_err(written(&path))?;
        // The revoked certificate's key is useless, and may exist on the host only.
        let _ = fs::remove_file(directory.join(key_of(name)));
    }
    let list = list_of(&away, &issuer)?;
    replace(&directory.join(REVOKED), EVERYBODY_READS, &list)
}

fn list_of(away: &Path, issuer: &Issuer<'_, KeyPair>) -> Result<String, KeysError> {
    let mut revoked_certs = Vec::new();
    for entry in fs::read_dir(away).map_err(written(away))? {
        let path = entry.map_err(written(away))?.path();
        let found = fs::metadata(&path).and_then(|found| found.modified());
        revoked_certs.push(RevokedCertParams {
            serial_number: SerialNumber::from(serial_of(&path)?),
            revocation_time: found.map_err(written(&path))?.into(),
            reason_code: Some(RevocationReason::KeyCompromise),
            invalidity_date: None,
        });
    }
    revoked_certs.sort_by_key(|each| each.serial_number.to_bytes());
    let now = SystemTime::now();
    let list = CertificateRevocationListParams {
        this_update: (now - BEFORE).into(),
        next_update: (now + AUTHORITY_DAYS * DAY).into(),
        crl_number: SerialNumber::from(revoked_certs.len() as u64),
        issuing_distribution_point: None,
        revoked_certs,
        key_identifier_method: KeyIdMethod::Sha256,
    };
    list.signed_by(issuer)
        .and_then(|list| list.pem())
        .map_err(made)
}

/// The authority's own properties, which must equal the issuer's in every certificate.
fn authority() -> Result<CertificateParams, KeysError> {
    let mut params = lasting(Vec::new(), "Laxity site authority", AUTHORITY_DAYS)?;
    params.is_ca = IsCa::Ca(BasicConstraints::Constrained(0));
    params.key_usages = vec![KeyUsagePurpose::KeyCertSign, KeyUsagePurpose::CrlSign];
    Ok(params)
}

fn lasting(known_as: Vec<String>, name: &str, days: u32) -> Result<CertificateParams, KeysError> {
    let mut params = CertificateParams::new(known_as).map_err(made)?;
    let now = SystemTime::now();
    params.not_before = (now - BEFORE).into();
    params.not_after = (now + days * DAY).into();
    params.distinguished_name = DistinguishedName::new();
    params.distinguished_name.push(DnType::CommonName, name);
    Ok(params)
}

/// Opens the authority in this directory.
fn open(directory: &Path) -> Result<Issuer<'static, KeyPair>, KeysError> {
    let path = directory.join(AUTHORITY_KEY);
    let refused = |reason: String| KeysError::File {
        path: path.clone(),
        reason,
    };
    let pem = String::from_utf8(read_secret(&path).map_err(refused)?)
        .map_err(|error| refused(error.to_string()))?;
    let key = KeyPair::from_pem(&pem).map_err(|error| refused(error.to_string()))?;
    Ok(Issuer::new(authority()?, key))
}

/// Writes an owner's new key and certificate: both are complete before either replaces an old one.
fn issue(
    directory: &Path,
    issuer: &Issuer<'_, KeyPair>,
    (name, known_as): &Owner,
) -> Result<(), KeysError> {
    let mut params = lasting(known_as.clone(), name, HOST_DAYS)?;
    params.extended_key_usages = vec![
        ExtendedKeyUsagePurpose::ServerAuth,
        ExtendedKeyUsagePurpose::ClientAuth,
    ];
    params.use_authority_key_identifier_extension = true;
    let key = KeyPair::generate().map_err(made)?;
    let certificate = params.signed_by(&key, issuer).map_err(made)?;
    replace(
        &directory.join(key_of(name)),
        OWNER_ONLY,
        &key.serialize_pem(),
    )?;
    replace(
        &directory.join(certificate_of(name)),
        EVERYBODY_READS,
        &certificate.pem(),
    )
}

fn key_of(name: &str) -> String {
    format!("{name}.key")
}

fn certificate_of(name: &str) -> String {
    format!("{name}.crt")
}

fn serial_of(path: &Path) -> Result<Vec<u8>, KeysError> {
    let refused = |reason: String| KeysError::File {
        path: path.into(),
        reason,
    };
    let text = input::read(path, PEM_BYTES_MAX).map_err(|error| refused(error.to_string()))?;
    let certificate =
        CertificateDer::from_pem_slice(&text).map_err(|error| refused(error.to_string()))?;
    let certificate = webpki::EndEntityCert::try_from(&certificate)
        .map_err(|error| refused(error.to_string()))?;
    Ok(certificate.serial().to_vec())
}

fn hexadecimal(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

/// Writes a file that must not exist; a link in its place is not followed.
fn write(path: &Path, mode: u32, text: &str) -> Result<(), KeysError> {
    let mut options = OpenOptions::new();
    let opened = options.write(true).create_new(true).mode(mode).open(path);
    opened
        .and_then(|mut file: File| {
            file.write_all(text.as_bytes())?;
            file.sync_all()
        })
        .map_err(written(path))
}

/// Replaces a file that may exist; the new mode does not depend on the old one.
fn replace(path: &Path, mode: u32, text: &str) -> Result<(), KeysError> {
    let mut new = path.as_os_str().to_owned();
    new.push(".new");
    let new = Path::new(&new);
    // A killed run may have left the temporary file.
    let _ = fs::remove_file(new);
    write(new, mode, text)?;
    fs::rename(new, path).map_err(written(path))
}

fn made(error: rcgen::Error) -> KeysError {
    KeysError::Make(error.to_string())
}

fn written(path: &Path) -> impl Fn(io::Error) -> KeysError {
    move |error| KeysError::Make(format!("{}: {error}", path.display()))
}
