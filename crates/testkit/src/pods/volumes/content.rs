//! Owns which files a volume has: those of Secrets and ConfigMaps, fields of the Pod, and tokens.

use anyhow::{Context, bail};
use k8s_openapi::api::core::v1::{
    ConfigMapProjection, DownwardAPIProjection, KeyToPath, Pod, SecretProjection, Volume,
    VolumeProjection,
};

use super::atomic::{FileContent, Files};
use crate::pods::fields::{Addresses, field};
use crate::pods::sources::{Data, Sources};

/// Permissions of files whose volume does not set them.
const MODE: i32 = 0o644;

/// A volume with files, whatever its type, as a projected volume.
#[derive(Clone, Debug)]
pub(crate) struct Projected {
    sources: Vec<VolumeProjection>,
    mode: i32,
}

impl Projected {
    /// `None` for a volume of another type.
    pub(crate) fn of(volume: &Volume) -> Option<Self> {
        let one = |source: VolumeProjection, mode: Option<i32>| {
            Some(Self {
                sources: vec![source],
                mode: mode.unwrap_or(MODE),
            })
        };
        if let Some(projected) = &volume.projected {
            return Some(Self {
                sources: projected.sources.clone().unwrap_or_default(),
                mode: projected.default_mode.unwrap_or(MODE),
            });
        }
        if let Some(secret) = &volume.secret {
            let projection = SecretProjection {
                items: secret.items.clone(),
                name: secret.secret_name.clone().unwrap_or_default(),
                optional: secret.optional,
            };
            let source = VolumeProjection {
                secret: Some(projection),
                ..VolumeProjection::default()
            };
            return one(source, secret.default_mode);
        }
        if let Some(map) = &volume.config_map {
            let projection = ConfigMapProjection {
                items: map.items.clone(),
                name: map.name.clone(),
                optional: map.optional,
            };
            let source = VolumeProjection {
                config_map: Some(projection),
                ..VolumeProjection::default()
            };
            return one(source, map.default_mode);
        }
        let fields = volume.downward_api.as_ref()?;
        let projection = DownwardAPIProjection {
            items: fields.items.clone(),
        };
        let source = VolumeProjection {
            downward_api: Some(projection),
            ..VolumeProjection::default()
        };
        one(source, fields.default_mode)
    }

    /// The files as they are to be now.
    pub(crate) async fn files(
        &self,
        pod: &Pod,
        addresses: Addresses,
        from: &Sources,
    ) -> anyhow::Result<Files> {
        let mut files = Files::new();
        for source in &self.sources {
            if let Some(secret) = &source.secret {
                let optional = secret.optional == Some(true);
                let data = from.secret(&secret.name, optional).await?;
                self.add_keys(&mut files, data, secret.items.as_deref(), optional)
                    .with_context(|| format!("Secret {:?}", secret.name))?;
            } else if let Some(map) = &source.config_map {
                let optional = map.optional == Some(true);
                let data = from.config_map(&map.name, optional).await?;
                self.add_keys(&mut files, data, map.items.as_deref(), optional)
                    .with_context(|| format!("ConfigMap {:?}", map.name))?;
            } else if let Some(fields) = &source.downward_api {
                for item in fields.items.iter().flatten() {
                    let path = item.field_ref.as_ref().map(|r| r.field_path.as_str());
                    let value = path.and_then(|path| field(pod, addresses, path));
                    let value = value.with_context(|| format!("no field {path:?}"))?;
                    self.add(&mut files, &item.path, value.into_bytes(), item.mode);
                }
            } else if let Some(token) = &source.service_account_token {
                let audience = token.audience.as_deref().unwrap_or_default();
                let text = from.token(audience, token.expiration_seconds).await?;
                self.add(&mut files, &token.path, text.into_bytes(), None);
            } else {
                bail!("the Pod runner has no such source of a volume");
            }
        }
        Ok(files)
    }

    /// All keys, or those listed.
    fn add_keys(
        &self,
        files: &mut Files,
        data: Option<Data>,
        items: Option<&[KeyToPath]>,
        optional: bool,
    ) -> anyhow::Result<()> {
        let Some(data) = data else { return Ok(()) };
        let Some(items) = items else {
            for (key, bytes) in data {
                self.add(files, &key, bytes, None);
            }
            return Ok(());
        };
        for item in items {
            match data.get(&item.key) {
                Some(bytes) => self.add(files, &item.path, bytes.clone(), item.mode),
                None if optional => {}
                None => bail!("no key {:?}", item.key),
            }
        }
        Ok(())
    }

    fn add(&self, files: &mut Files, path: &str, bytes: Vec<u8>, mode: Option<i32>) {
        let mode = u32::try_from(mode.unwrap_or(self.mode)).unwrap_or_default();
        files.insert(path.to_owned(), FileContent { bytes, mode });
    }
}
