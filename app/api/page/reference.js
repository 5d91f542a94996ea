// The API reference, drawn from the OpenAPI document of this very service.

import { byId, element } from "/page/elements.js";

const DEEPEST = 4;
let schemas = {};

const named = (schema) => schema?.$ref?.split("/").pop();
const resolved = (schema) => (schema?.$ref ? schemas[named(schema)] : schema) || {};

// Gives a sentence with what stands between backquotes as code.
const prose = (text = "") =>
  text.split("`").map((piece, index) => (index % 2 ? element("code", {}, piece) : piece));

// Tells a schema's type in a few words.
function typeOf(schema) {
  if (!schema) return "any";
  if (schema.$ref) return named(schema);
  const choices = schema.anyOf || schema.oneOf;
  if (choices) return choices.map(typeOf).join(" or ");
  if (schema.const !== undefined) return JSON.stringify(schema.const);
  if (schema.enum) return schema.enum.map((value) => JSON.stringify(value)).join(", ");
  if (schema.type === "array") return `list of ${typeOf(schema.items)}`;
  return schema.type || "any";
}

function rows(schema, prefix = "", depth = 0) {
  const shape = resolved(schema);
  return Object.entries(shape.properties || {}).flatMap(([name, field]) => {
    const path = prefix + name;
    const needed = (shape.required || []).includes(name) ? " · required" : "";
    const row = element(
      "tr",
      {},
      element("td", {}, path),
      element("td", {}, element("div", { class: "type" }, typeOf(field) + needed), ...prose(field.description)),
    );
    return depth < DEEPEST ? [row, ...inner(field).flatMap(([s, mark]) => rows(s, `${path}${mark}.`, depth + 1))] : [row];
  });
}

// Gives the schemas inside a field that have fields of their own, and how they are written.
function inner(field) {
  const all = field.anyOf || field.oneOf || [field];
  return all.flatMap((one) => {
    const item = one.type === "array" ? one.items : one;
    const mark = one.type === "array" ? "[]" : "";
    const choices = item?.anyOf || item?.oneOf || [item];
    return choices.filter((choice) => resolved(choice).properties).map((choice) => [choice, mark]);
  });
}

function table(content) {
  return element("table", {}, element("tbody", {}, ...content));
}

function parameters(list) {
  return list.map((one) =>
    element(
      "tr",
      {},
      element("td", {}, one.name),
      element(
        "td",
        {},
        element("div", { class: "type" }, `${typeOf(one.schema)} · ${one.in}${one.required ? " · required" : ""}`),
        ...prose(one.description),
      ),
    ),
  );
}

function responses(all) {
  return Object.entries(all).map(([status, response]) => {
    const media = Object.entries(response.content || {})
      .map(([type, { schema }]) => (schema ? `${type}: ${typeOf(schema)}` : type))
      .join(" · ");
    return element(
      "tr",
      {},
      element("td", {}, status),
      element("td", {}, element("div", { class: "type" }, media), element("div", { class: "text" }, ...prose(response.description))),
    );
  });
}

function call(method, path, operation) {
  const body = operation.requestBody?.content?.["application/json"]?.schema;
  return element(
    "details",
    { class: "call", id: operation.operationId },
    element("summary", {}, element("span", { class: "method" }, method.toUpperCase()), element("code", {}, path)),
    element("p", { class: "text" }, ...prose(operation.description)),
    ...(operation.parameters ? [element("h3", {}, "Parameters"), table(parameters(operation.parameters))] : []),
    ...(body ? [element("h3", {}, `Body: ${typeOf(body)}`), table(rows(body))] : []),
    element("h3", {}, "Answers"),
    table(responses(operation.responses)),
  );
}

function model(name, schema) {
  return element(
    "details",
    { class: "call", id: `schema-${name}` },
    element("summary", {}, element("code", {}, name)),
    element("p", { class: "text" }, ...prose(schema.description)),
    table(rows(schema)),
  );
}

async function draw() {
  const response = await fetch("/openapi.json");
  if (!response.ok) throw new Error(`The document can't be read: ${response.status}.`);
  const document = await response.json();
  schemas = document.components.schemas;
  const groups = new Map();
  for (const [path, methods] of Object.entries(document.paths)) {
    for (const [method, operation] of Object.entries(methods)) {
      const tag = operation.tags?.[0] || "other";
      groups.set(tag, [...(groups.get(tag) || []), call(method, path, operation)]);
    }
  }
  byId("calls").replaceChildren(
    element("p", {}, document.info.description),
    ...[...groups].flatMap(([tag, calls]) => [element("h2", {}, tag), ...calls]),
    element("h2", {}, "Schemas"),
    ...Object.entries(schemas).map(([name, schema]) => model(name, schema)),
  );
}

draw().catch((error) => byId("calls").replaceChildren(element("p", { class: "fault", role: "alert" }, error.message)));
