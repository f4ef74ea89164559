#!/usr/bin/env python3
"""Schemas of published tools: how many are enforced as they are.

usage: tool_schemas.py fetch FOLDER
       tool_schemas.py check FOLDER --base-url http://127.0.0.1:8000 [--key KEY]
needs: npm and node for `fetch`; jsonschema and requests for `check`

`fetch` installs MCP servers from npm (PACKAGES) into FOLDER, asks each for its tools, and writes tools.json. The servers
are other people's programs: they get neither a network nor root (`unshare`, `setpriv`; run it as root).

`check` asks a server for one answer under each schema, at temperature 1, so that values that nobody would write are
tried too. It prints how many schemas are refused, how many come back with a warning that a keyword has no effect, and how
many answers jsonschema finds wrong.
"""
import argparse
import collections
import concurrent.futures
import decimal
import json
import os
import pathlib
import select
import subprocess
import time

# The servers that start without a network or an account, with the arguments that show all of their tools.
PACKAGES = {
    "@modelcontextprotocol/server-filesystem@2026.8.31": ["."],
    "@modelcontextprotocol/server-everything@2026.8.31": [],
    "@modelcontextprotocol/server-memory@2026.8.31": [],
    "@modelcontextprotocol/server-sequential-thinking@2026.8.31": [],
    "@playwright/mcp@0.0.83": ["--caps", "vision,pdf,testing,tracing,network,storage,devtools,config"],
    "chrome-devtools-mcp@1.11.0": [],
    "@notionhq/notion-mcp-server@2.5.2": [],
    "@upstash/context7-mcp@4.1.1": [],
    "@softeria/ms-365-mcp-server@0.155.0": ["--org-mode"],
    "@shortcut/mcp@0.25.0": [],
    "mcp-server-kubernetes@4.1.7": [],
    "@sentry/mcp-server@0.36.0": ["--access-token=none"],
    "@cablate/mcp-google-map@0.0.63": ["--stdio"],
    "@hubspot/mcp-server@0.4.0": [],
    "mongodb-mcp-server@3.0.4": [],
}
VARIABLES = {
    "NOTION_TOKEN": "ntn_none",
    "SHORTCUT_API_TOKEN": "none",
    "GOOGLE_MAPS_API_KEY": "none",
    "PRIVATE_APP_ACCESS_TOKEN": "pat-none",
    "MDB_MCP_CONNECTION_STRING": "mongodb://localhost",
}
SECONDS_TO_ANSWER = 30
NOBODY = "65534"


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("command", choices=["fetch", "check"])
    parser.add_argument("folder", type=pathlib.Path)
    parser.add_argument("--base-url", default="http://127.0.0.1:8000")
    parser.add_argument("--key", default="none")
    args = parser.parse_args()
    if args.command == "fetch":
        fetch(args.folder)
    else:
        check(args.folder, args.base_url, args.key)


def fetch(folder):
    folder.mkdir(parents=True, exist_ok=True)
    home = folder / "home"
    home.mkdir(exist_ok=True)
    home.chmod(0o777)
    options = ["--no-audit", "--no-fund", "--ignore-scripts", "--legacy-peer-deps"]
    subprocess.run(["npm", "install", *options, "--prefix", folder, *PACKAGES], check=True)
    tools = []
    for package, arguments in PACKAGES.items():
        name = package[: package.rindex("@")]
        own = tools_of(folder / "node_modules" / name, arguments, home)
        print(f"{len(own):4} {package}", flush=True)
        tools += [{"package": package, "name": tool["name"], "schema": tool["inputSchema"]} for tool in own]
    (folder / "tools.json").write_text(json.dumps(tools))
    print(f"{len(tools):4} in all")


def tools_of(package, arguments, home):
    """What a server answers to `tools/list`, page by page."""
    program = json.loads((package / "package.json").read_text())["bin"]
    program = program if isinstance(program, str) else next(iter(program.values()))
    apart = ["unshare", "--net", "setpriv", f"--reuid={NOBODY}", f"--regid={NOBODY}", "--clear-groups"]
    process = subprocess.Popen(
        [*apart, "node", (package / program).resolve(), *arguments],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        env={**os.environ, **VARIABLES, "HOME": str(home.resolve())},
        cwd=home,
    )

    def send(method, params, number=None):
        message = {"jsonrpc": "2.0", "method": method, "params": params}
        if number is not None:
            message["id"] = number
        process.stdin.write(json.dumps(message).encode() + b"\n")
        process.stdin.flush()

    client = {"protocolVersion": "2025-06-18", "capabilities": {}, "clientInfo": {"name": "formwork", "version": "1"}}
    try:
        send("initialize", client, 1)
        send("notifications/initialized", {})
        send("tools/list", {}, 2)
        tools, read, end = [], b"", time.monotonic() + SECONDS_TO_ANSWER
        while time.monotonic() < end:
            if not select.select([process.stdout], [], [], 1)[0]:
                continue
            piece = os.read(process.stdout.fileno(), 1 << 20)
            if not piece:
                break
            *lines, read = (read + piece).split(b"\n")
            for line in filter(None, lines):
                message = json.loads(line)
                if message.get("id") != 2:
                    continue
                tools += message["result"]["tools"]
                if "nextCursor" not in message["result"]:
                    return tools
                send("tools/list", {"cursor": message["result"]["nextCursor"]}, 2)
        return tools
    finally:
        process.kill()


def read_number(text):
    """A number as it stands there: a float would make zero of a very small one, and 5.0 is an integer."""
    value = decimal.Decimal(text)
    return int(value) if value == value.to_integral_value() and value.adjusted() < 300 else value


def check(folder, base_url, key):
    import jsonschema
    import requests

    def ask(tool):
        body = {
            "messages": [{"role": "user", "content": "Call it."}],
            "max_tokens": 600,
            "temperature": 1,
            "seed": 1,
            "structured_outputs": {"json": tool["schema"]},
        }
        headers = {"Authorization": f"Bearer {key}"}
        answer = requests.post(f"{base_url}/v1/chat/completions", json=body, headers=headers, timeout=600)
        if answer.status_code != 200:
            return "refused", answer.json()["error"]["message"]
        text = answer.json()["choices"][0]["message"]["content"]
        try:
            value = json.loads(text, parse_float=read_number)
            jsonschema.validators.validator_for(tool["schema"])(tool["schema"]).validate(value)
        except (ValueError, jsonschema.ValidationError) as error:
            return "wrong", str(error).splitlines()[0]
        warnings = answer.headers.get("x-formwork-warnings")
        return ("enforced but for a keyword", warnings) if warnings else ("enforced", None)

    tools = json.loads((folder / "tools.json").read_text())
    with concurrent.futures.ThreadPoolExecutor(8) as pool:
        verdicts = list(pool.map(ask, tools))
    for tool, (verdict, why) in zip(tools, verdicts):
        if why is not None:
            print(f"{verdict}: {tool['package']} {tool['name']}: {why}")
    for verdict, number in collections.Counter(verdict for verdict, _ in verdicts).most_common():
        print(f"{number:4} {verdict}")


main()
