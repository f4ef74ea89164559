//! Rules about files and ports in Landlock's terms.

use landlock::{
    ABI, Access as _, AccessFs, AccessNet, BitFlags, NetPort, PathBeneath, PathFd, Ruleset,
    RulesetAttr, RulesetCreatedAttr, RulesetError, RulesetStatus, Scope, make_bitflags,
};

use crate::rules::{Access, FileRules};
use crate::{Confinement, Tcp};

/// Rights of the newest kernel whose every new right is known to leave the processes working. Older
/// kernels enforce those that they have.
const RIGHTS: ABI = ABI::V6;

pub(crate) fn confine(rules: &FileRules, tcp: &Tcp) -> Confinement {
    match restrict(rules, tcp) {
        Ok(RulesetStatus::FullyEnforced) => Confinement::Full("files, TCP and signals by Landlock"),
        Ok(RulesetStatus::PartiallyEnforced) => Confinement::Partial("files by Landlock"),
        Ok(RulesetStatus::NotEnforced) => {
            Confinement::None("Landlock in this kernel: files are not confined".to_owned())
        }
        Err(error) => Confinement::None(format!("Landlock: {error}")),
    }
}

fn restrict(rules: &FileRules, tcp: &Tcp) -> Result<RulesetStatus, RulesetError> {
    let ports = match tcp {
        Tcp::None => AccessNet::from_all(RIGHTS),
        Tcp::ConnectTo(_) => AccessNet::ConnectTcp.into(),
    };
    let mut ruleset = Ruleset::default()
        .handle_access(AccessFs::from_all(RIGHTS))?
        .handle_access(ports)?
        .scope(Scope::from_all(RIGHTS))?
        .create()?;
    for (path, access) in rules.iter() {
        // What isn't there needs no rule.
        let Ok(metadata) = path.metadata() else {
            continue;
        };
        let Ok(opened) = PathFd::new(path) else {
            continue;
        };
        let mut rights = rights(access);
        if !metadata.is_dir() {
            rights &= AccessFs::from_file(RIGHTS);
        }
        if !rights.is_empty() {
            ruleset = ruleset.add_rule(PathBeneath::new(opened, rights))?;
        }
    }
    if let Tcp::ConnectTo(ports) = tcp {
        for port in ports {
            ruleset = ruleset.add_rule(NetPort::new(*port, AccessNet::ConnectTcp))?;
        }
    }
    Ok(ruleset.restrict_self()?.ruleset)
}

fn rights(access: Access) -> BitFlags<AccessFs> {
    match access {
        Access::Read => make_bitflags!(AccessFs::{ReadFile | ReadDir}),
        Access::Execute => make_bitflags!(AccessFs::{ReadFile | ReadDir | Execute}),
        Access::Write => make_bitflags!(AccessFs::{ReadFile | WriteFile | Truncate}),
        Access::MakeFiles => {
            make_bitflags!(AccessFs::{MakeReg | WriteFile | Truncate | RemoveFile})
        }
        Access::MakeSockets => {
            make_bitflags!(AccessFs::{MakeSock | MakeDir | RemoveFile | RemoveDir})
        }
        Access::RemoveFiles => AccessFs::RemoveFile.into(),
    }
}
