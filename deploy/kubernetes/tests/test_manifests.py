"""What `deploy/kubernetes` and the manifests of docs/kubernetes.md say is valid and fits together.

Run by validate.sh, which has the packages. NODE_MODULES is the folder with node_modules in it, KUBECTL the program.
"""

import copy
import json
import os
import pathlib
import re
import subprocess
import unittest

import yaml

import schemas

DEPLOY = pathlib.Path(__file__).parent.parent
DOCS = DEPLOY.parent.parent / "docs" / "kubernetes.md"
MODULES = os.environ["NODE_MODULES"]
KUBECTL = os.environ["KUBECTL"]
# One that guesses what a replica's cache has, and one that is told.
PICKER_FILES = [DEPLOY / f"components/{which}/endpoint-picker-config.yaml" for which in ("gateway", "precise-prefixes")]
# LAST_WORDS of engine-frontend/src/server/run.rs: seconds that connections may take to send what is finished.
LAST_WORDS = 5
FOLDERS = ["base", *sorted(f"overlays/{path.name}" for path in (DEPLOY / "overlays").iterdir())]


def render(folder):
    """The objects that kustomize makes of a folder."""
    run = subprocess.run([KUBECTL, "kustomize", folder], capture_output=True, text=True, check=False)
    if run.returncode != 0 or run.stderr:
        raise AssertionError(f"{folder}: {run.stderr}")
    return list(yaml.safe_load_all(run.stdout))


RENDERED = {folder: render(DEPLOY / folder) for folder in FOLDERS}


def documented_blocks():
    """The manifests of the documentation, and the parts of some, as text."""
    return re.findall(r"```yaml\n(.*?)```", DOCS.read_text(), re.S)


def of_kind(objects, kind, name=None):
    return [o for o in objects if o["kind"] == kind and name in (None, o["metadata"]["name"])]


def one(objects, kind, name="formwork"):
    found = of_kind(objects, kind, name)
    assert len(found) == 1, f"{len(found)} {kind} {name}"
    return found[0]


def selects(selector, labels):
    return bool(selector) and selector.items() <= labels.items()


def pod_specs(objects):
    """Name, pod's labels and pod's specification of all that runs, KServe's runtime with its service's part."""
    for deployment in of_kind(objects, "Deployment"):
        template = deployment["spec"]["template"]
        yield deployment["metadata"]["name"], template["metadata"]["labels"], template["spec"]
    for runtime in of_kind(objects, "ServingRuntime"):
        predictor = one(objects, "InferenceService")["spec"]["predictor"]
        grace = predictor["terminationGracePeriodSeconds"]
        yield "kserve", {}, {**runtime["spec"], "terminationGracePeriodSeconds": grace}


def flags(container):
    """The flags of a container's arguments and variables, as a dictionary."""
    args = container["args"]
    assert args[0] == "serve", args
    found = {
        name.removeprefix("--"): "true" if value is None or value.startswith("--") else value
        for name, value in zip(args, args[1:] + [None])
        if name.startswith("--")
    }
    for variable in container["env"]:
        name = variable["name"].removeprefix("FORMWORK_").lower().replace("_", "-")
        found[name] = variable.get("value", variable.get("valueFrom"))
    return found


def ports_of(container):
    """Port by name and by number."""
    ports = container.get("ports", [])
    by_number = {port["containerPort"]: port["containerPort"] for port in ports}
    return by_number | {port["name"]: port["containerPort"] for port in ports if "name" in port}


def in_each_folder(test):
    """Runs a test with the objects of each folder."""

    def run(self):
        for folder, objects in RENDERED.items():
            with self.subTest(folder):
                test(self, objects)

    return run


class Valid(unittest.TestCase):
    """By the schemas."""

    def test_every_object_is_valid(self):
        for folder, objects in RENDERED.items():
            for value, problem in zip(objects, schemas.problems(objects, MODULES)):
                self.assertIsNone(problem, f"{folder}: {value['kind']}")

    def test_the_endpoint_pickers_files_are_valid(self):
        for path in PICKER_FILES:
            config = yaml.safe_load(path.read_text())
            self.assertEqual(schemas.problems([config], MODULES), [None], path)
            declared = {plugin.get("name", plugin["type"]) for plugin in config["plugins"]}
            sources = config.get("dataLayer", {}).get("sources", [])
            referred = [*(plugin for profile in config["schedulingProfiles"] for plugin in profile["plugins"]), *sources]
            referred += [extractor for source in sources for extractor in source["extractors"]]
            self.assertLessEqual({plugin["pluginRef"] for plugin in referred}, declared)

    def test_every_manifest_of_the_documentation_is_valid(self):
        objects = [o for block in documented_blocks() for o in yaml.safe_load_all(block)]
        kinds = [o["kind"] for o in objects]
        self.assertGreaterEqual(len(kinds), 3, kinds)
        # kustomize's own files are checked by rendering.
        objects = [o for o in objects if o["kind"] not in ("Kustomization", "Component")]
        for value, problem in zip(objects, schemas.problems(objects, MODULES)):
            self.assertIsNone(problem, f"{DOCS.name}: {value['kind']}")

    def test_the_overlays_of_the_documentation_render(self):
        """And what they make of the base is valid, fields that their patches add included."""
        files = [block for block in documented_blocks() if "kind: Kustomization" in block]
        self.assertEqual(len(files), 1)
        for text in files:
            folder = DEPLOY / "overlays" / f".of-the-documentation-{os.getpid()}"
            folder.mkdir()
            try:
                (folder / "kustomization.yaml").write_text(text)
                objects = render(folder)
            finally:
                (folder / "kustomization.yaml").unlink()
                folder.rmdir()
            self.assertEqual(set(schemas.problems(objects, MODULES)), {None})

    def test_wrong_objects_are_refused(self):
        """A field more and a value of another type, in each kind."""
        seen = {}
        for objects in RENDERED.values():
            for value in objects:
                seen.setdefault(value["kind"], value)
        config = yaml.safe_load(PICKER_FILES[0].read_text())
        seen[config["kind"]] = config
        wrong = []
        for kind, value in seen.items():
            body = "spec" if "spec" in value else None
            for field, to in [("formwrok", 1)] + ([(body, "text")] if body else []):
                other = copy.deepcopy(value)
                target = other[body] if body and field == "formwrok" else other
                target[field] = to
                wrong.append((f"{kind}: {field}", other))
            wrong.append((f"{kind}: a kind that isn't there", {**value, "kind": "Formwrok"}))

        def change(kind, path, to):
            other = copy.deepcopy(seen[kind])
            target = other
            for step in path[:-1]:
                target = target[step]
            target[path[-1]] = to
            wrong.append((f"{kind}: {path}", other))

        container = ["spec", "template", "spec", "containers", 0]
        change("Deployment", [*container, "livenessProbe", "httpGet", "pfad"], "/")
        change("Deployment", [*container, "lifecycle", "preStop", "sleep"], {"seconds": "five"})
        change("ScaledObject", ["spec", "triggers", 0, "querry"], "x")
        change("ScaledObject", ["spec", "fallback", "behavior"], "guess")
        change("HTTPRoute", ["spec", "rules", 0, "timeouts", "request"], "soon")
        change("InferencePool", ["spec", "endpointPickerRef", "failureMode"], "Fail")
        change("InferencePool", ["spec", "targetPorts"], [{"number": 65536}])
        change("ServingRuntime", ["spec", "containers", 0, "readinessProbe", "httpget"], {})
        change("ServingRuntime", ["spec", "containers"], None)
        change("InferenceService", ["spec", "predictor", "model", "storageURI"], "pvc://x")
        change("InferenceService", ["spec", "predictor", "autoScaling", "metrics", 0, "external", "metric", "url"], "x")
        change("InferencePool", ["spec", "endpointPickerRef", "group"], "Core")
        change("InferencePool", ["spec", "endpointPickerRef"], {"name": "a"})
        change("InferencePool", ["spec", "endpointPickerRef"], {"name": "a", "kind": "Service"})
        change("EndpointPickerConfig", ["plugins", 0, "parameters", "port"], 8001)
        change("EndpointPickerConfig", ["dataLayer"], {"sources": [{"pluginRef": "metrics-data-source"}]})
        seen["EndpointPickerConfig"] = yaml.safe_load(PICKER_FILES[1].read_text())
        kinds = [plugin["type"] for plugin in seen["EndpointPickerConfig"]["plugins"]]
        events = ["plugins", kinds.index("precise-prefix-cache-producer"), "parameters", "kvEventsConfig"]
        change("EndpointPickerConfig", [*events, "socketPort"], 5557)
        change("EndpointPickerConfig", ["plugins", kinds.index("token-producer"), "parameters", "vllm"], {})
        for (what, _), problem in zip(wrong, schemas.problems([value for _, value in wrong], MODULES)):
            self.assertIsNotNone(problem, what)


class FitsTogether(unittest.TestCase):
    """What no schema sees: names, labels, ports and times that must agree between objects."""

    @in_each_folder
    def test_selectors_select_the_pods(self, objects):
        labels = {name: labels for name, labels, _ in pod_specs(objects)}
        for deployment in of_kind(objects, "Deployment"):
            selector = deployment["spec"]["selector"]["matchLabels"]
            self.assertTrue(selects(selector, labels[deployment["metadata"]["name"]]))
        others = [
            (o, o["spec"].get("selector") or o["spec"]["podSelector"])
            for kind in ("Service", "PodDisruptionBudget", "NetworkPolicy", "InferencePool")
            for o in of_kind(objects, kind)
        ]
        for value, selector in others:
            selector = selector.get("matchLabels", selector)
            selected = [name for name, pod in labels.items() if selects(selector, pod)]
            self.assertEqual(selected, [value["metadata"]["name"]], value["kind"])
        for monitor in of_kind(objects, "ServiceMonitor"):
            service = one(objects, "Service")
            self.assertTrue(selects(monitor["spec"]["selector"]["matchLabels"], service["metadata"]["labels"]))
            ports = {port["name"] for port in service["spec"]["ports"]}
            for endpoint in monitor["spec"]["endpoints"]:
                self.assertIn(endpoint["port"], ports)

    @in_each_folder
    def test_ports_exist(self, objects):
        containers = {name: spec["containers"][0] for name, _, spec in pod_specs(objects)}
        for container in containers.values():
            ports = ports_of(container)
            for probe in ("startupProbe", "readinessProbe", "livenessProbe"):
                for how in ("httpGet", "grpc"):
                    port = container.get(probe, {}).get(how, {}).get("port")
                    self.assertIn(port, [None, *ports], probe)
        for service in of_kind(objects, "Service"):
            ports = ports_of(containers[service["metadata"]["name"]])
            for port in service["spec"]["ports"]:
                self.assertEqual(ports[port["targetPort"]], port["port"])
        for policy in of_kind(objects, "NetworkPolicy"):
            ports = ports_of(containers[policy["metadata"]["name"]])
            for rule in policy["spec"]["ingress"]:
                for port in rule["ports"]:
                    self.assertIn(port["port"], ports)
        for pool in of_kind(objects, "InferencePool"):
            for port in pool["spec"]["targetPorts"]:
                self.assertIn(port["number"], ports_of(containers["formwork"]))
            picker = pool["spec"]["endpointPickerRef"]
            service = one(objects, "Service", picker["name"])
            self.assertIn(picker["port"]["number"], [port["port"] for port in service["spec"]["ports"]])

    @in_each_folder
    def test_the_server_listens_where_the_pod_says(self, objects):
        for name, _, spec in pod_specs(objects):
            if name == "formwork-endpoint-picker":
                continue
            container = spec["containers"][0]
            given = flags(container)
            listens = {int(given.get("port", 8000)): given["host"]}
            if "management-port" in given:
                listens[int(given["management-port"])] = given["management-host"]
            if "kv-events-config" in given:
                endpoint = json.loads(given["kv-events-config"])["endpoint"]
                listens[int(endpoint.removeprefix("tcp://*:"))] = "0.0.0.0"
            declared = {port["containerPort"] for port in container["ports"]}
            self.assertEqual(set(listens), declared)
            self.assertEqual(set(listens.values()), {"0.0.0.0"})
            # Without its own port /metrics is where requests are, where it would ask for a key.
            self.assertNotEqual("management-port" in given, given.get("open-routes") == "true")

    @in_each_folder
    def test_pods_have_time_to_drain(self, objects):
        for name, _, spec in pod_specs(objects):
            container = spec["containers"][0]
            before = container["lifecycle"]["preStop"]["sleep"]["seconds"]
            drain = 120
            if name != "formwork-endpoint-picker":
                drain = int(flags(container)["shutdown-timeout"])
                self.assertGreater(drain, 0)
            self.assertGreater(spec["terminationGracePeriodSeconds"], before + drain + LAST_WORDS, name)

    @in_each_folder
    def test_pods_are_confined(self, objects):
        for name, _, spec in pod_specs(objects):
            container = spec["containers"][0]
            security = {**spec.get("securityContext", {}), **container["securityContext"]}
            self.assertTrue(security["runAsNonRoot"], name)
            self.assertGreater(security["runAsUser"], 0)
            self.assertEqual(security["seccompProfile"], {"type": "RuntimeDefault"})
            self.assertFalse(security["allowPrivilegeEscalation"])
            self.assertTrue(security["readOnlyRootFilesystem"])
            self.assertEqual(security["capabilities"], {"drop": ["ALL"]})
            self.assertEqual(len(spec["containers"]), 1)

    @in_each_folder
    def test_what_is_referred_to_is_there(self, objects):
        for name, _, spec in pod_specs(objects):
            container = spec["containers"][0]
            volumes = {volume["name"]: volume for volume in spec["volumes"]}
            mounted = {mount["name"] for mount in container["volumeMounts"]}
            self.assertEqual(set(volumes), mounted, name)
            if "serviceAccountName" in spec:
                one(objects, "ServiceAccount", spec["serviceAccountName"])
            for volume in volumes.values():
                self.assertEqual(len(volume), 2, volume)
                if "persistentVolumeClaim" in volume:
                    one(objects, "PersistentVolumeClaim", volume["persistentVolumeClaim"]["claimName"])
                if "configMap" in volume:
                    one(objects, "ConfigMap", volume["configMap"]["name"])
        for scaled in of_kind(objects, "ScaledObject"):
            target = one(objects, "Deployment", scaled["spec"]["scaleTargetRef"]["name"])
            self.assertNotIn("replicas", target["spec"])
        for route in of_kind(objects, "HTTPRoute"):
            for rule in route["spec"]["rules"]:
                # With open routes the gateway must not lead to /metrics.
                self.assertEqual([match["path"]["value"] for match in rule["matches"]], ["/v1"])
                for backend in rule["backendRefs"]:
                    one(objects, backend["kind"], backend["name"])
        for binding in of_kind(objects, "RoleBinding"):
            one(objects, "Role", binding["roleRef"]["name"])
            for subject in binding["subjects"]:
                one(objects, subject["kind"], subject["name"])
        for service in of_kind(objects, "InferenceService"):
            model = service["spec"]["predictor"]["model"]
            runtime = one(objects, "ServingRuntime", model["runtime"])
            formats = [supported["name"] for supported in runtime["spec"]["supportedModelFormats"]]
            self.assertIn(model["modelFormat"]["name"], formats)

    def test_replicas_follow_what_waits_and_what_runs(self):
        """The same two sums and the same shares of a replica in both autoscalers; nothing multiplies replicas."""
        (scaled,) = of_kind(RENDERED["overlays/autoscaling"], "ScaledObject")
        expected = {}
        for trigger in scaled["spec"]["triggers"]:
            self.assertEqual(trigger.get("metricType", "AverageValue"), "AverageValue")
            metric = re.fullmatch(r"sum\((.*)\{job=\"formwork\"\}\)", trigger["metadata"]["query"])[1]
            expected[metric] = trigger["metadata"]["threshold"]
        self.assertEqual(set(expected), {"vllm:num_requests_waiting", "vllm:num_requests_running"})

        service = one(RENDERED["overlays/kserve"], "InferenceService")
        found = {}
        for metric in service["spec"]["predictor"]["autoScaling"]["metrics"]:
            self.assertEqual(metric["type"], "External")
            query = metric["external"]["metric"]["query"]
            name = service["metadata"]["name"]
            target = metric["external"]["target"]
            # What KServe's webhook asks for: `value` in any case, and the field of its type.
            self.assertEqual(target, {"type": "AverageValue", "averageValue": target["value"], "value": target["value"]})
            found[re.fullmatch(rf"sum\((.*)\{{model_name=\"{name}\"\}}\)", query)[1]] = target["value"]
        self.assertEqual(found, expected)

    def test_the_picker_is_told_its_pool_and_its_file(self):
        for folder in ("overlays/gateway", "overlays/precise-prefixes", "overlays/ten-machines"):
            objects = RENDERED[folder]
            picker = one(objects, "Deployment", "formwork-endpoint-picker")["spec"]["template"]["spec"]
            args = dict(arg.removeprefix("--").split("=") for arg in picker["containers"][0]["args"])
            pool = one(objects, "InferencePool", args["pool-name"])
            self.assertEqual(pool["apiVersion"].split("/")[0], args["pool-group"])
            mount = picker["containers"][0]["volumeMounts"][0]["mountPath"]
            folder, file = args["config-file"].rsplit("/", 1)
            self.assertEqual(folder, mount)
            self.assertIn(file, one(objects, "ConfigMap", picker["volumes"][0]["configMap"]["name"])["data"])
            labels = one(objects, "Deployment")["spec"]["template"]["metadata"]["labels"]
            self.assertEqual(labels["llm-d.ai/engine-type"], "vllm")

    def test_the_picker_finds_the_events_of_a_prompt(self):
        """Its key has the model, and its scorer asks the producer that it is told: else it guesses, and says nothing."""
        objects = RENDERED["overlays/precise-prefixes"]
        container = one(objects, "Deployment")["spec"]["template"]["spec"]["containers"][0]
        values = {}
        for variable in container["env"]:
            # As Kubernetes does it: a variable knows those before it in the list.
            text = variable.get("value", "an address")
            values[variable["name"]] = re.sub(r"\$\((\w+)\)", lambda match: values.get(match[1], match[0]), text)
        events = json.loads(values["FORMWORK_KV_EVENTS_CONFIG"])
        self.assertTrue(events["enable_kv_cache_events"])
        self.assertEqual(events["topic"], f"kv@an address@{values['FORMWORK_SERVED_MODEL_NAME']}")

        file = next(o for o in of_kind(objects, "ConfigMap") if "endpoint-picker-config.yaml" in o["data"])
        config = yaml.safe_load(file["data"]["endpoint-picker-config.yaml"])
        plugins = {plugin["type"]: plugin.get("parameters") for plugin in config["plugins"]}
        precise = "precise-prefix-cache-producer"
        self.assertEqual(plugins["prefix-cache-scorer"], {"prefixMatchInfoProducerName": precise})
        self.assertNotIn("approx-prefix-cache-producer", plugins)
        # tests/processes looks for the metrics that the other file names.
        for plugin in yaml.safe_load(PICKER_FILES[0].read_text())["plugins"]:
            if plugin["type"] in ("metrics-data-source", "core-metrics-extractor"):
                self.assertEqual(plugins[plugin["type"]], plugin["parameters"])
        self.assertEqual(plugins["token-producer"]["modelName"], values["FORMWORK_SERVED_MODEL_NAME"])
        self.assertEqual(plugins[precise]["tokenProcessorConfig"]["blockSize"], int(values.get("FORMWORK_BLOCK_SIZE", 16)))
        self.assertTrue(events["topic"].startswith(plugins[precise]["kvEventsConfig"]["topicFilter"]))
        port = plugins[precise]["kvEventsConfig"]["podDiscoveryConfig"]["socketPort"]
        self.assertEqual(events["endpoint"], f"tcp://*:{port}")
        self.assertEqual(ports_of(container)["kv-events"], port)
        sources = {source["pluginRef"]: source["extractors"] for source in config["dataLayer"]["sources"]}
        self.assertEqual(sources["endpoint-notification-source"], [{"pluginRef": precise}])
        self.assertEqual(sources["metrics-data-source"], [{"pluginRef": "core-metrics-extractor"}])
        # The port is open to the picker alone.
        (rule,) = [rule for rule in one(objects, "NetworkPolicy")["spec"]["ingress"] if rule["ports"][0]["port"] == "kv-events"]
        labels = one(objects, "Deployment", "formwork-endpoint-picker")["spec"]["template"]["metadata"]["labels"]
        self.assertEqual(rule["from"], [{"podSelector": {"matchLabels": labels}}])
        # What the tokenizer of the documentation serves is what the picker asks for.
        blocks = [o for block in documented_blocks() for o in yaml.safe_load_all(block)]
        render = one(blocks, "Deployment", "formwork-render")["spec"]["template"]
        arguments = render["spec"]["containers"][0]["args"]
        self.assertIn(f"--served-model-name={plugins['token-producer']['modelName']}", arguments)
        service = one(blocks, "Service", "formwork-render")
        self.assertTrue(selects(service["spec"]["selector"], render["metadata"]["labels"]))
        address = f"http://{service['metadata']['name']}:{service['spec']['ports'][0]['port']}"
        self.assertEqual(plugins["token-producer"]["vllm"]["url"], address)


if __name__ == "__main__":
    unittest.main()
