/** Colours a pipeline's text: cuts each line of SQL or YAML into pieces with a kind. Pure functions. */

const SQL_WORDS = new Set(
  (
    "add alter all and any array as asc between bigint binary boolean bounded by bytes case cast catalog char create cross current " +
    "database date decimal delay desc describe distinct double drop else end exists explain false first float following for from " +
    "full function group having hop if in inner insert int integer intersect interval into is join last lateral left like limit " +
    "map match_recognize materialized measures minus minute month multiset natural not null nulls numeric of offset on or order " +
    "outer over partition pattern preceding primary key range row rows second select session set sets show smallint string system_time " +
    "table temporary then time timestamp timestamp_ltz tinyint to true tumble unbounded union unnest update use using values " +
    "varbinary varchar view watermark when where window with within without year zone begin statement enforced define hour day"
  ).split(" "),
);
const SQL = /(--.*)|(\/\*.*?(?:\*\/|$))|('(?:[^']|'')*'?)|(`[^`]*`?)|(\b\d+(?:\.\d+)?\b)|([A-Za-z_][A-Za-z_0-9]*)/g;
const PYTHON_WORDS = new Set(
  (
    "and as assert async await break class continue def del elif else except False finally for from global if import in is lambda " +
    "None nonlocal not or pass raise return True try while with yield"
  ).split(" "),
);
const PYTHON =
  /(#.*)|((?:"""|''')(?:.*?)(?:"""|'''|$)|"(?:[^"\\]|\\.)*"?|'(?:[^'\\]|\\.)*'?)|(\b\d+(?:\.\d+)?\b)|([A-Za-z_]\w*)/g;
const YAML_KEY = /^(\s*(?:- +)*)([^\s#'"{[][^:#]*?|'[^']*'|"[^"]*")(:)(?=\s|$)/;
const YAML =
  /((?:^|(?<=\s))#.*)|('(?:[^']|'')*'?|"(?:[^"\\]|\\.)*"?)|(\$\{[^}]*\}?)|((?:^|(?<=[\s:[,]))-?\d+(?:\.\d+)?(?=$|[\s,\]}]))/g;
const LONGEST = 2000;

/**
 * Cuts a text into lines of pieces.
 *
 * @param {string} text
 * @param {"sql"|"yaml"|"python"|"text"} language
 * @returns {{kind: string, text: string}[][]} kind: comment, string, number, word, key, name, or "" for the rest.
 */
export function highlight(text, language) {
  let inComment = false;
  return text.split(/\r?\n/).map((line) => {
    if (line.length > LONGEST) return [{ kind: "", text: line }];
    if (language === "yaml") return yamlLine(line);
    if (language === "python") return pythonLine(line);
    if (language !== "sql") return [{ kind: "", text: line }];
    const pieces = [];
    let rest = line;
    if (inComment) {
      const end = line.indexOf("*/");
      if (end < 0) return [{ kind: "comment", text: line }];
      pieces.push({ kind: "comment", text: line.slice(0, end + 2) });
      rest = line.slice(end + 2);
      inComment = false;
    }
    for (const [piece, ...groups] of cut(rest, SQL)) {
      const kind = sqlKind(piece, groups);
      if (groups[1] !== undefined && !piece.endsWith("*/")) inComment = true;
      pieces.push({ kind, text: piece });
    }
    return pieces;
  });
}

function sqlKind(piece, groups) {
  if (groups[0] !== undefined || groups[1] !== undefined) return "comment";
  if (groups[2] !== undefined) return "string";
  if (groups[3] !== undefined) return "name";
  if (groups[4] !== undefined) return "number";
  return groups[5] !== undefined && SQL_WORDS.has(piece.toLowerCase()) ? "word" : "";
}

/** Texts over several lines are only known in their first and last one. */
function pythonLine(line) {
  return [...cut(line, PYTHON)].map(([piece, comment, string, number, name]) => {
    if (comment !== undefined) return { kind: "comment", text: piece };
    if (string !== undefined) return { kind: "string", text: piece };
    if (number !== undefined) return { kind: "number", text: piece };
    return { kind: name !== undefined && PYTHON_WORDS.has(name) ? "word" : "", text: piece };
  });
}

function yamlLine(line) {
  const pieces = [];
  let rest = line;
  const key = YAML_KEY.exec(line);
  if (key) {
    pieces.push({ kind: "", text: key[1] }, { kind: "key", text: key[2] }, { kind: "", text: key[3] });
    rest = line.slice(key[0].length);
  }
  for (const [piece, ...groups] of cut(rest, YAML)) {
    const kinds = ["comment", "string", "name", "number"];
    pieces.push({ kind: kinds[groups.findIndex((g) => g !== undefined)] ?? "", text: piece });
  }
  return pieces.filter((p) => p.text);
}

/** Matches of a pattern in a text and what stands between them, which has no groups. */
function* cut(text, pattern) {
  let at = 0;
  for (const match of text.matchAll(pattern)) {
    if (match.index > at) yield [text.slice(at, match.index)];
    yield match;
    at = match.index + match[0].length;
  }
  if (at < text.length) yield [text.slice(at)];
}
