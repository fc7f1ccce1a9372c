//! From a URL to the object that it names, and whose credentials go with the requests.

use std::collections::HashMap;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use fiche::Result;
use object_store::aws::{AmazonS3Builder, AmazonS3ConfigKey, resolve_bucket_region};
use object_store::http::HttpBuilder;
use object_store::path::Path;
use object_store::{BackoffConfig, ClientOptions, ObjectStore, RetryConfig};
use url::Url;

use crate::error::{failed, invalid};
use crate::{Options, runtime};

/// Where an object is.
#[derive(Clone)]
pub(crate) struct Object {
    /// Without what is secret in it: for messages.
    pub url: String,
    /// What may be wrong where the server refuses.
    pub hint: &'static str,
    pub store: Arc<dyn ObjectStore>,
    pub path: Path,
}

impl Object {
    /// The object of this URL. For S3 the region of a bucket may have to be asked for; else nothing
    /// is sent yet.
    pub fn of(text: &str, options: &Options) -> Result<Object> {
        let Ok(url) = Url::parse(text) else { return invalid("this is no URL") };
        runtime::prepare();
        let client = ClientOptions::new()
            .with_allow_http(true)
            .with_connect_timeout(options.timeout.min(Duration::from_secs(10)))
            .with_read_timeout(options.timeout)
            .with_timeout_disabled();
        let retry = RetryConfig {
            backoff: BackoffConfig {
                init_backoff: Duration::from_millis(100),
                max_backoff: Duration::from_secs(5),
                base: 2.0,
            },
            max_retries: options.retries,
            retry_timeout: options.timeout * (options.retries as u32 + 1),
        };
        let (shown, mut hint) = (shown(&url), "");
        let (store, path): (Arc<dyn ObjectStore>, Path) = match url.scheme() {
            "http" | "https" => {
                let built = HttpBuilder::new()
                    .with_url(text)
                    .with_client_options(client)
                    .with_retry(retry)
                    .build();
                (Arc::new(built.map_err(|error| failed(&shown, hint, &error))?), Path::default())
            }
            "s3" | "s3a" => {
                let Some(bucket) = url.host_str() else {
                    return invalid(format!("{shown}: this names no bucket"));
                };
                let path = Path::from_url_path(url.path().trim_start_matches('/'));
                let Ok(path) = path else {
                    return invalid(format!("{shown}: an object cannot have this name"));
                };
                let builder =
                    amazon(bucket, &client)?.with_client_options(client).with_retry(retry);
                let has =
                    |key| builder.get_config_value(&key).is_some_and(|value| value != "false");
                if !has(AmazonS3ConfigKey::AccessKeyId) && !has(AmazonS3ConfigKey::SkipSignature) {
                    hint = "; neither the environment nor ~/.aws has credentials: for what is public, \
                            set AWS_SKIP_SIGNATURE=true";
                }
                (Arc::new(builder.build().map_err(|error| failed(&shown, hint, &error))?), path)
            }
            other => {
                return invalid(format!(
                    "{shown}: {other} is read neither as a web server nor as S3"
                ));
            }
        };
        Ok(Object { url: shown, hint, store, path })
    }
}

/// A URL without user, password, and what signs it, for messages; nothing of what is none.
#[must_use]
pub fn without_secrets(url: &str) -> String {
    Url::parse(url).map_or_else(|_| "the URL".to_owned(), |url| shown(&url))
}

fn shown(url: &Url) -> String {
    let mut url = url.clone();
    // Fails for URLs that cannot have them.
    let _ = url.set_username("");
    let _ = url.set_password(None);
    url.set_query(None);
    url.set_fragment(None);
    url.to_string()
}

/// S3, with credentials and settings as its other tools find them: the environment, then the files of
/// the profile; behind them object_store asks for those of the machine.
fn amazon(bucket: &str, client: &ClientOptions) -> Result<AmazonS3Builder> {
    use AmazonS3ConfigKey as Key;
    let mut builder = AmazonS3Builder::from_env().with_bucket_name(bucket);
    let profile = profile();
    let has_own = builder.get_config_value(&Key::AccessKeyId).is_some();
    let mut set = |key: Key, name: &str| {
        if let Some(value) = profile.get(name).filter(|_| builder.get_config_value(&key).is_none())
        {
            builder = std::mem::take(&mut builder).with_config(key, value);
        }
    };
    // What belongs together is from one place.
    if !has_own {
        set(Key::AccessKeyId, "aws_access_key_id");
        set(Key::SecretAccessKey, "aws_secret_access_key");
        set(Key::Token, "aws_session_token");
    }
    set(Key::Region, "region");
    set(Key::Endpoint, "endpoint_url");
    // As the command line of Amazon's calls them.
    for name in ["AWS_ENDPOINT_URL_S3", "AWS_ENDPOINT_URL"] {
        if let (None, Ok(url)) = (builder.get_config_value(&Key::Endpoint), std::env::var(name)) {
            builder = builder.with_endpoint(url);
        }
    }
    if builder.get_config_value(&Key::Endpoint).is_none()
        && builder.get_config_value(&Key::Region).is_none()
    {
        let (bucket, client) = (bucket.to_owned(), client.clone());
        // Where it cannot be had, requests will say what is wrong.
        let region = runtime::wait(async move { resolve_bucket_region(&bucket, &client).await })?;
        if let Ok(region) = region {
            builder = builder.with_region(region);
        }
    }
    Ok(builder)
}

/// What the files of Amazon's tools say of the profile in use.
fn profile() -> HashMap<String, String> {
    let name = std::env::var("AWS_PROFILE").unwrap_or_else(|_| "default".to_owned());
    let home = std::env::var_os("HOME").map(PathBuf::from).unwrap_or_default();
    let file = |variable: &str, usual: &str| {
        let path = std::env::var_os(variable).map(PathBuf::from);
        std::fs::read_to_string(path.unwrap_or_else(|| home.join(".aws").join(usual)))
            .unwrap_or_default()
    };
    let mut found =
        section(&file("AWS_CONFIG_FILE", "config"), &[&name, &format!("profile {name}")]);
    found.extend(section(&file("AWS_SHARED_CREDENTIALS_FILE", "credentials"), &[&name]));
    found
}

/// The settings of the sections of these names.
fn section(text: &str, names: &[&str]) -> HashMap<String, String> {
    let mut is_in = false;
    let mut found = HashMap::new();
    for line in text.lines().map(str::trim) {
        if let Some(name) = line.strip_prefix('[').and_then(|rest| rest.strip_suffix(']')) {
            is_in = names.contains(&name.trim());
        } else if let (true, Some((key, value))) = (is_in, line.split_once('=')) {
            found.insert(key.trim().to_owned(), value.trim().to_owned());
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_profile_is_what_its_sections_say() {
        let text = "[default]\nregion = eu-west-1\n\n# more\n[profile lab]\nregion=x\n  endpoint_url = http://h\n[other]\nregion=y";
        assert_eq!(section(text, &["default"])["region"], "eu-west-1");
        let lab = section(text, &["lab", "profile lab"]);
        assert_eq!((lab["region"].as_str(), lab["endpoint_url"].as_str()), ("x", "http://h"));
        assert!(section(text, &["none"]).is_empty());
    }

    #[test]
    fn what_is_secret_is_not_shown() {
        let url = Url::parse("https://me:word@example.org/a/b.fiche?X-Amz-Signature=1#x").unwrap();
        assert_eq!(shown(&url), "https://example.org/a/b.fiche");
    }

    #[test]
    fn what_is_no_object_is_refused() {
        for (url, why) in [
            ("no url", "no URL"),
            ("ftp://example.org/x", "neither as a web server nor as S3"),
            ("s3:///x", "no bucket"),
        ] {
            let error = Object::of(url, &Options::default()).err().expect("an error").to_string();
            assert!(error.contains(why), "{error}");
        }
    }
}
