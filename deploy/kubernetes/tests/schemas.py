"""Says what is wrong with an object of Kubernetes or of a project around it.

Where the schemas come from:

- Kubernetes' own kinds: its OpenAPI definitions, strict, in the package kubernetes-validate.
- Gateway API, KEDA, Prometheus operator: the npm packages @kubernetes-models (crds.mjs).
- KServe: the models of its Python package, which are generated from its OpenAPI definitions. They are read, not
  imported, and turned into a JSON Schema that refuses other fields.
- InferencePool and the endpoint picker's file: schemas/, written from their documentation.
"""

import ast
import functools
import importlib.util
import json
import pathlib
import re
import subprocess

import jsonschema
import kubernetes_validate

HERE = pathlib.Path(__file__).parent
# The oldest version with all that we use, and the newest.
OLDEST, NEWEST = "1.30.0", kubernetes_validate.latest_version()
# Groups that crds.mjs has packages for.
NPM_GROUPS = ("gateway.networking.k8s.io", "keda.sh", "monitoring.coreos.com")
OWN_SCHEMAS = {
    ("inference.networking.k8s.io/v1", "InferencePool"): "inferencepool.json",
    ("llm-d.ai/v1alpha1", "EndpointPickerConfig"): "endpointpickerconfig.json",
}


def package_folder(name):
    """The folder of an installed package, without importing it."""
    return pathlib.Path(importlib.util.find_spec(name).submodule_search_locations[0])


@functools.cache
def kubernetes_definitions():
    """Every definition of Kubernetes, with none of other fields."""
    schemas = package_folder("kubernetes_validate") / "kubernetes-json-schema"
    path = schemas / f"v{NEWEST}-local-strict" / "_definitions.json"
    return json.loads(path.read_text())["$defs"]


def class_attribute(tree, name):
    """The dictionary that a class of a generated model assigns to `name`."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Assign) and getattr(node.targets[0], "id", None) == name:
            return ast.literal_eval(node.value)
    raise KeyError(name)


@functools.cache
def kserve_files():
    """The file of each model of KServe's."""
    models = (package_folder("kserve") / "models").glob("*.py")
    texts = {path: path.read_text() for path in models}
    return {name: path for path, text in texts.items() for name in re.findall(r"(?m)^class (\w+)", text)}


def kserve_model(name, definitions):
    """Adds the definition of a model of KServe's, and those of its fields, to `definitions`."""
    if name in definitions:
        return
    text = kserve_files()[name].read_text()
    tree = ast.parse(text)
    types, keys = (class_attribute(tree, which) for which in ("openapi_types", "attribute_map"))
    required = set(re.findall(r"client_side_validation and (\w+) is None", text))
    definition = definitions[name] = {"type": "object", "additionalProperties": False}
    definition["required"] = sorted(keys[field] for field in required)
    definition["properties"] = {
        keys[field]: kserve_type(type_name, definitions) for field, type_name in types.items()
    }


def kserve_type(name, definitions):
    """A type of a generated model as a schema."""
    if match := re.fullmatch(r"list\[(.*)\]", name):
        return {"type": "array", "items": kserve_type(match[1], definitions)}
    if match := re.fullmatch(r"dict\(str, (.*)\)", name):
        return {"type": "object", "additionalProperties": kserve_type(match[1], definitions)}
    simple = {"str": "string", "int": "integer", "bool": "boolean", "float": "number", "object": "object"}
    if name in simple:
        return {"type": simple[name]}
    # Kubernetes writes quantities as text or as numbers.
    if name.endswith("Quantity"):
        return {"type": ["string", "number"]}
    kubernetes = kubernetes_definitions()
    ours = {
        "V1ObjectMeta": "io.k8s.apimachinery.pkg.apis.meta.v1.ObjectMeta",
        "K8sIoApiAppsV1DeploymentStrategy": "io.k8s.api.apps.v1.DeploymentStrategy",
        "K8sIoApiAutoscalingV2HorizontalPodAutoscalerBehavior":
            "io.k8s.api.autoscaling.v2.HorizontalPodAutoscalerBehavior",
    }
    full = ours.get(name, f"io.k8s.api.core.v1.{name.removeprefix('V1')}")
    if full in kubernetes:
        return {"$ref": f"#/$defs/{full}"}
    # The package refers to some that it lacks; whoever uses such a field must find another way to check it.
    if name not in kserve_files():
        return False
    kserve_model(name, definitions)
    return {"$ref": f"#/$defs/{name}"}


@functools.cache
def kserve_schema(api_version, kind):
    """The schema of a kind of KServe's, None if it has no such kind."""
    definitions = dict(kubernetes_definitions())
    name = api_version.split("/")[1].capitalize() + kind
    if name not in kserve_files():
        return None
    kserve_model(name, definitions)
    return {"$ref": f"#/$defs/{name}", "$defs": definitions}


def by_schema(schema, value):
    """What is wrong with a value by a JSON Schema, or None."""
    validator = jsonschema.Draft202012Validator(schema)
    error = jsonschema.exceptions.best_match(validator.iter_errors(value))
    return error and f"{error.json_path}: {error.message}"


def by_npm(objects, modules):
    """What is wrong with each object, by the packages in `modules` (the folder that has node_modules)."""
    if not objects:
        return []
    script = pathlib.Path(modules) / "crds.mjs"
    script.write_text((HERE / "crds.mjs").read_text())
    run = subprocess.run(
        ["node", script], cwd=modules, input=json.dumps(objects), text=True, capture_output=True, check=False
    )
    if run.returncode != 0:
        raise RuntimeError(run.stderr)
    return json.loads(run.stdout)


def problems(objects, modules):
    """A message for each wrong object, None for each other; a kind without a schema is wrong."""
    found = [None] * len(objects)
    npm = []
    for place, value in enumerate(objects):
        group = value["apiVersion"].split("/")[0]
        kind = (value["apiVersion"], value["kind"])
        if kind in OWN_SCHEMAS:
            schema = json.loads((HERE / "schemas" / OWN_SCHEMAS[kind]).read_text())
            found[place] = by_schema(schema, value)
        elif group == "serving.kserve.io":
            schema = kserve_schema(*kind)
            found[place] = by_schema(schema, value) if schema else f"no schema of {kind}"
        elif group in NPM_GROUPS:
            npm.append(place)
        else:
            try:
                for version in (OLDEST, NEWEST):
                    kubernetes_validate.validate(value, version, strict=True)
            except kubernetes_validate.ValidationError as error:
                found[place] = str(error)
            except kubernetes_validate.SchemaNotFoundError:
                found[place] = f"no schema of {kind}"
    for place, message in zip(npm, by_npm([objects[place] for place in npm], modules)):
        found[place] = message
    return found
