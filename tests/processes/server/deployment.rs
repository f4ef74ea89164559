//! What `deploy/` and the migration pages say is true of the program.

use std::collections::BTreeSet;

use super::support::{Server, chat, formwork};

fn read(path: &str) -> String {
    let path = integration_tests::workspace().join(path);
    std::fs::read_to_string(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}

/// What matches a pattern in a text.
fn all<'t>(pattern: &str, text: &'t str) -> BTreeSet<&'t str> {
    let pattern = regex::Regex::new(pattern).unwrap();
    pattern
        .find_iter(text)
        .map(|found| found.as_str())
        .collect()
}

/// The flags of a command, by its help.
fn flags(command: &[&str]) -> BTreeSet<String> {
    let help = formwork().args(command).arg("--help").output().unwrap();
    let help = String::from_utf8(help.stdout).unwrap();
    let flags = all("--[a-z0-9][a-z0-9-]*", &help);
    flags.into_iter().map(str::to_owned).collect()
}

#[test]
fn every_metric_of_the_dashboard_is_served() {
    let server = Server::shared();
    let mut body = chat("Hi", 4);
    body["guided_choice"] = serde_json::json!(["yes", "no"]);
    assert_eq!(server.post("/v1/chat/completions", &body).status, 200);
    let metrics = server.get("/metrics").body;
    let dashboard = read("deploy/grafana/formwork.json");
    let used = all("(vllm|formwork|http):[a-z0-9_]+", &dashboard);
    assert!(used.len() > 10, "{used:?}");
    for name in used {
        // A counter by reason has no sample before the first reason, but is declared.
        let is_served = |line: &str| {
            let declared = line.strip_prefix("# TYPE ").unwrap_or(line);
            let rest = declared.strip_prefix(name);
            rest.is_some_and(|rest| rest.starts_with(['{', ' ']))
        };
        assert!(metrics.lines().any(is_served), "{name} is not served");
    }
}

/// Kubernetes' manifests that give flags to a server, as arguments or as variables, and their page.
const MANIFESTS: [&str; 6] = [
    "docs/kubernetes.md",
    "deploy/kubernetes/base/deployment.yaml",
    "deploy/kubernetes/components/gateway/deployment.yaml",
    "deploy/kubernetes/components/model-claim/deployment.yaml",
    "deploy/kubernetes/components/precise-prefixes/kustomization.yaml",
    "deploy/kubernetes/overlays/kserve/servingruntime.yaml",
];

#[test]
fn every_flag_of_the_manifests_exists() {
    let known = flags(&["serve"]);
    let unit = read("deploy/systemd/formwork.service");
    let mut used = flags_of_commands(&unit);
    assert!(!used.is_empty());
    for path in MANIFESTS {
        let manifest = read(path);
        let variables = all("FORMWORK_[A-Z_]+", &manifest);
        assert!(!variables.is_empty(), "{path}");
        for variable in variables {
            let name = variable.trim_start_matches("FORMWORK_").to_lowercase();
            used.push(format!("--{}", name.replace('_', "-")));
        }
        used.extend(flags_of_commands(&manifest));
    }
    for flag in used {
        assert!(known.contains(&flag), "{flag}");
    }
}

/// The flags of the lines that start a server.
fn flags_of_commands(text: &str) -> Vec<String> {
    text.lines()
        .filter(|line| line.starts_with("ExecStart=") || line.trim().starts_with("args:"))
        .flat_map(|line| all("--[a-z0-9-]+", line))
        .map(str::to_owned)
        .collect()
}

/// Names and labels are those of the model server protocol of the Gateway API Inference Extension and of the llm-d
/// router, for an engine of the type `vllm`.
#[test]
fn every_metric_of_the_endpoint_picker_is_served() {
    let read_by_picker = BTreeSet::from([
        "vllm:cache_config_info",
        "vllm:kv_cache_usage_perc",
        "vllm:lora_requests_info",
        "vllm:num_requests_running",
        "vllm:num_requests_waiting",
    ]);
    let config = read("deploy/kubernetes/components/gateway/endpoint-picker-config.yaml");
    let configured = all(r"(?m)Spec: vllm:[a-z_]+$", &config);
    let configured: BTreeSet<&str> = configured
        .iter()
        .map(|line| line.trim_start_matches("Spec: "))
        .collect();
    assert_eq!(configured, read_by_picker);

    let metrics = Server::shared().get("/metrics").body;
    for name in read_by_picker {
        let kind = format!("# TYPE {name} gauge");
        assert!(metrics.lines().any(|line| line == kind), "{kind}");
        let samples = metrics
            .lines()
            .filter(|line| line.starts_with(&format!("{name}{{")));
        assert_eq!(samples.count(), 1, "{name}");
    }
    let is_read = |label: &str| {
        let sample = format!(r#"(?m)^vllm:cache_config_info\{{.*\b{label}="[1-9][0-9]*".*\}} 1$"#);
        !all(&sample, &metrics).is_empty()
    };
    assert!(
        is_read("block_size") && is_read("num_gpu_blocks"),
        "{metrics}"
    );
    // The value is a time, of which the latest counts.
    let adapters = r#"(?m)^vllm:lora_requests_info\{.*max_lora="0",running_lora_adapters="",waiting_lora_adapters="".*\} [1-9][0-9]{9}$"#;
    assert_eq!(all(adapters, &metrics).len(), 1, "{metrics}");
}

/// The last column of the tables is what Formwork has; where it says "the same", the first one is.
#[test]
fn every_flag_of_the_migration_pages_exists() {
    let known = flags(&["serve"]);
    for (page, least) in [
        ("docs/coming-from-vllm.md", 30),
        ("docs/coming-from-llama-cpp.md", 15),
    ] {
        let text = read(page);
        let mut found = 0;
        for row in text.lines().filter(|line| line.starts_with("| ")) {
            let cells: Vec<&str> = row.trim_matches('|').split(" | ").collect();
            let [first, last] = cells.as_slice() else {
                panic!("{page}: two columns: {row}");
            };
            let ours = match last.trim().starts_with("the same") {
                true => format!("{first} {last}"),
                false => (*last).to_owned(),
            };
            for flag in all("--[a-z0-9][a-z0-9-]*", &ours) {
                assert!(known.contains(flag), "{page}: {flag} in: {row}");
                found += 1;
            }
        }
        assert!(found >= least, "{page}: {found} flags");
    }
}
