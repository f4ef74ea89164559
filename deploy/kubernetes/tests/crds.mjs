// Checks objects against the schemas that @kubernetes-models has of other projects' CRDs. Takes a JSON list on
// standard input; writes a list with null for each valid one and a message for each other.
//
// The schemas know values and let unknown fields pass; the packages' TypeScript types know fields. Both are asked.
// Runs in the folder that has node_modules.
import { readFileSync, writeFileSync } from "node:fs";
import ts from "typescript";

const PACKAGES = {
  "gateway.networking.k8s.io": "@kubernetes-models/gateway-api",
  "keda.sh": "@kubernetes-models/keda",
  "monitoring.coreos.com": "@kubernetes-models/prometheus-operator",
};

function moduleOf({ apiVersion, kind }) {
  return `${PACKAGES[apiVersion.split("/")[0]]}/${apiVersion}/${kind}`;
}

async function wrongValue(object) {
  try {
    const Model = (await import(moduleOf(object)))[object.kind];
    new Model(object).validate();
    return null;
  } catch (error) {
    return error.message;
  }
}

// What the compiler says of each object as a literal of its type, by the object's place.
function wrongFields(objects) {
  const lines = objects.flatMap((object, i) => [
    `import type { I${object.kind} as T${i} } from "${moduleOf(object)}";`,
    `export const o${i}: T${i} = ${JSON.stringify(object)};`,
  ]);
  writeFileSync("objects.ts", lines.join("\n"));
  const program = ts.createProgram(["objects.ts"], {
    noEmit: true,
    strict: true,
    skipLibCheck: true,
    types: [],
    module: ts.ModuleKind.NodeNext,
    moduleResolution: ts.ModuleResolutionKind.NodeNext,
    target: ts.ScriptTarget.ES2022,
  });
  const found = objects.map(() => null);
  for (const { file, start, messageText } of ts.getPreEmitDiagnostics(program)) {
    const line = file.getLineAndCharacterOfPosition(start).line;
    found[Math.floor(line / 2)] = ts.flattenDiagnosticMessageText(messageText, " ");
  }
  return found;
}

const objects = JSON.parse(readFileSync(0, "utf8"));
const fields = wrongFields(objects);
const values = await Promise.all(objects.map(wrongValue));
console.log(JSON.stringify(objects.map((_, i) => values[i] ?? fields[i])));
