//! A provider behind TLS, as real ones are: whom the platform's roots vouch for is spoken to, nobody else, and the host's
//! proxy variables hold for such calls. Each attempt is a process of its own, since its environment decides.

use super::*;
use rcgen::{BasicConstraints, CertificateParams, CertifiedIssuer, IsCa, KeyPair};
use rustls::pki_types::{PrivateKeyDer, PrivatePkcs8KeyDer};
use std::path::PathBuf;
use std::process::Command;
use std::sync::mpsc::{Receiver, channel};

/// A certificate authority that nobody knows unless told.
struct Authority {
    issuer: CertifiedIssuer<'static, KeyPair>,
    folder: tempfile::TempDir,
}

impl Authority {
    fn new() -> Self {
        let mut parameters = CertificateParams::new(Vec::new()).unwrap();
        parameters.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        let issuer = CertifiedIssuer::self_signed(parameters, KeyPair::generate().unwrap()).unwrap();
        let folder = tempfile::tempdir().unwrap();
        std::fs::write(folder.path().join("roots.pem"), issuer.pem()).unwrap();
        Self { issuer, folder }
    }

    fn roots(&self) -> PathBuf {
        self.folder.path().join("roots.pem")
    }

    /// What a server for this name needs.
    fn server(&self, name: &str) -> Arc<rustls::ServerConfig> {
        let key = KeyPair::generate().unwrap();
        let certificate = CertificateParams::new(vec![name.to_owned()]).unwrap().signed_by(&key, &self.issuer).unwrap();
        let key = PrivateKeyDer::from(PrivatePkcs8KeyDer::from(key.serialize_der()));
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let builder = rustls::ServerConfig::builder_with_provider(provider).with_safe_default_protocol_versions();
        let config = builder.unwrap().with_no_client_auth().with_single_cert(vec![certificate.der().clone()], key);
        Arc::new(config.unwrap())
    }
}

/// A provider that speaks TLS; gives its address, and each request's head that came through.
fn provider(config: Arc<rustls::ServerConfig>) -> (SocketAddr, Receiver<String>) {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
    let address = listener.local_addr().unwrap();
    let (heard, requests) = channel();
    std::thread::spawn(move || {
        for stream in listener.incoming() {
            let connection = rustls::ServerConnection::new(Arc::clone(&config)).unwrap();
            let mut stream = rustls::StreamOwned::new(connection, stream.unwrap());
            let Some(head) = head_of(&mut stream) else { continue };
            heard.send(head).unwrap();
            let body = r#"{"object":"list","data":[{"id":"gpt-5-mini"}]}"#;
            let head = "HTTP/1.1 200 OK\r\ncontent-type: application/json\r\nconnection: close\r\ncontent-length:";
            let _ = write!(stream, "{head} {}\r\n\r\n{body}", body.len()).and_then(|()| stream.flush());
        }
    });
    (address, requests)
}

/// An HTTP proxy that leads to this address whatever it is asked for; gives its address, and what it was asked for.
fn proxy(to: SocketAddr) -> (SocketAddr, Receiver<String>) {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
    let address = listener.local_addr().unwrap();
    let (heard, requests) = channel();
    std::thread::spawn(move || {
        for stream in listener.incoming() {
            let mut near = stream.unwrap();
            let Some(head) = head_of(&mut near) else { continue };
            heard.send(head).unwrap();
            near.write_all(b"HTTP/1.1 200 Connection established\r\n\r\n").unwrap();
            let far = TcpStream::connect(to).unwrap();
            let (mut from, mut into) = (near.try_clone().unwrap(), far.try_clone().unwrap());
            std::thread::spawn(move || io::copy(&mut from, &mut into));
            let (mut from, mut into) = (far, near);
            std::thread::spawn(move || io::copy(&mut from, &mut into));
        }
    });
    (address, requests)
}

fn head_of(stream: &mut impl Read) -> Option<String> {
    let mut head = Vec::new();
    while !head.ends_with(b"\r\n\r\n") {
        let mut byte = [0];
        if stream.read(&mut byte).ok()? == 0 {
            return None;
        }
        head.push(byte[0]);
    }
    String::from_utf8(head).ok()
}

const ORIGIN: &str = "CRASHLAB_TEST_ORIGIN";

/// Run by the tests below, in a process whose environment says where the provider is, who is trusted, and which proxies
/// there are.
#[test]
#[ignore = "part of other tests"]
#[expect(clippy::disallowed_methods, reason = "the process is the test's own")]
fn a_call_to_an_https_upstream() {
    let mut setting = Setting::default();
    setting.gateway["upstream"] = json!(std::env::var(ORIGIN).unwrap());
    let gateway = gateway();
    let mut bench = Bench::ready(&gateway, setting);
    let (status, body) = bench.ask("GET /v1/models", "");
    let failure = bench.revoke().failures.first().map(|failure| failure.failure.as_str());
    println!("<{status} {} {}>", body.contains("gpt-5-mini"), failure.unwrap_or("-"));
}

/// What the call came to, in such an environment: status, whether the list of models came, how the provider failed.
#[expect(clippy::disallowed_methods, reason = "the test runs itself with another environment")]
fn called(origin: &str, roots: &Authority, environment: &[(&str, &str)]) -> String {
    let mut child = Command::new(std::env::current_exe().unwrap());
    child.args(["--exact", "--ignored", "--nocapture", "gateway::tests::tls::a_call_to_an_https_upstream"]);
    for name in ["HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY", "NO_PROXY"] {
        child.env_remove(name).env_remove(name.to_lowercase());
    }
    child.env(ORIGIN, origin).env("SSL_CERT_FILE", roots.roots()).env_remove("SSL_CERT_DIR");
    let output = child.envs(environment.iter().copied()).output().unwrap();
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    let said = text.split_once('<').and_then(|(_, rest)| rest.split_once('>'));
    said.unwrap_or_else(|| panic!("{text}\n{}", String::from_utf8_lossy(&output.stderr))).0.to_owned()
}

#[test]
fn a_provider_is_spoken_to_over_tls_where_the_platforms_roots_vouch_for_its_name() {
    let (known, stranger) = (Authority::new(), Authority::new());
    for (name, roots, wanted) in [
        ("localhost", &known, "200 true -"),
        ("localhost", &stranger, "502 false unreachable"),
        ("elsewhere.test", &known, "502 false unreachable"),
    ] {
        let (address, requests) = provider(known.server(name));
        assert_eq!(called(&format!("https://localhost:{}", address.port()), roots, &[]), wanted, "{name}");
        let heads: Vec<String> = requests.try_iter().collect();
        assert_eq!(heads.iter().filter(|head| head.contains(SECRET)).count(), usize::from(wanted.starts_with("200")));
    }
}

#[test]
fn the_hosts_proxy_leads_to_a_provider_elsewhere_and_sees_neither_key_nor_request() {
    let authority = Authority::new();
    let (address, requests) = provider(authority.server("provider.test"));
    for variable in ["HTTPS_PROXY", "https_proxy", "ALL_PROXY"] {
        let (proxy, asked) = proxy(address);
        let environment = [(variable, format!("http://{proxy}"))];
        let environment = environment.each_ref().map(|(name, value)| (*name, value.as_str()));
        assert_eq!(called("https://provider.test", &authority, &environment), "200 true -", "{variable}");
        let head = asked.try_recv().unwrap();
        assert!(head.starts_with("CONNECT provider.test:443 HTTP/1.1\r\n"), "{head}");
        assert!(!head.contains(SECRET) && !head.to_lowercase().contains("authorization"), "{head}");
        assert!(requests.try_recv().unwrap().contains(SECRET));
    }
}

#[test]
fn a_provider_on_loopback_or_among_no_proxy_is_not_asked_for_through_a_proxy() {
    let authority = Authority::new();
    let (address, _requests) = provider(authority.server("localhost"));
    let (proxy, asked) = proxy(address);
    let through = format!("http://{proxy}");
    let origin = format!("https://localhost:{}", address.port());
    assert_eq!(called(&origin, &authority, &[("HTTPS_PROXY", &through)]), "200 true -");
    let environment = [("HTTPS_PROXY", through.as_str()), ("NO_PROXY", "provider.test")];
    assert_eq!(called("https://provider.test", &authority, &environment), "502 false unreachable");
    assert_eq!(asked.try_iter().count(), 0);
}
