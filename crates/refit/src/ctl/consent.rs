//! The flags of writes that are refused unless they are meant: shared by `create`, `edit` and `autoupdate update`.

/// What the author of a document consents to.
#[derive(Debug, Clone, Copy, Default, clap::Args)]
pub(super) struct Consent {
    /// Let autoupdate_version go to a lower major version
    #[arg(long)]
    pub(super) allow_major_downgrade: bool,
    /// Choose a version that the server does not publish for every platform of the fleet, because hosts download it from a
    /// mirror elsewhere
    #[arg(long)]
    pub(super) allow_missing: bool,
    /// Store an immediate autoupdate_version while the rollout is paused; no host is told before it is resumed
    #[arg(long)]
    pub(super) even_if_paused: bool,
}
