/**
 * Draws views: a view is a value that describes elements, and `render` makes the page be so.
 *
 * Elements that are there already are kept, and with them focus, selection and scrolling. Whatever a view says is text:
 * nothing here reads HTML, so that no name of a job or column can become an element.
 */

const SVG = "http://www.w3.org/2000/svg";
const drawn = new WeakMap();
/** Attributes whose present value is a property of the element. */
const LIVE = new Set(["value", "checked", "disabled", "open", "selected"]);
/** Links lead to views of the page only. */
const LINKS = /^#/;

/**
 * Describes an element.
 *
 * @param {string} name tag with classes: `"div.card.wide"`.
 * @param {object|null} attributes attributes by name; `key` tells the element from its siblings, `on` holds listeners by event,
 *   `style` properties of style by name, `class` more classes, `created` is called once with the element.
 * @param {...*} children descriptions, texts, numbers, or lists of them; null and false are left out.
 */
export function h(name, attributes, ...children) {
  const [tag, ...classes] = name.split(".");
  const { key, on, style, created, class: more, ...rest } = attributes ?? {};
  if (more) classes.push(more);
  if (classes.length) rest.class = classes.join(" ");
  return { tag, key, on: on ?? {}, style: style ?? {}, created, attributes: rest, children: flat(children, []) };
}

/** Makes the children of an element be what the descriptions say. */
export function render(parent, ...children) {
  patchChildren(parent, flat(children, []));
}

function flat(children, found) {
  for (const child of children) {
    if (Array.isArray(child)) flat(child, found);
    else if (child !== null && child !== undefined && child !== false && child !== "") {
      found.push(typeof child === "object" ? child : String(child));
    }
  }
  return found;
}

function patchChildren(parent, wanted) {
  const keyed = new Map();
  const loose = [];
  for (const node of parent.childNodes) {
    const key = drawn.get(node)?.key;
    if (key === undefined) loose.push(node);
    else keyed.set(key, node);
  }
  let place = 0;
  const kept = wanted.map((one) => {
    if (typeof one !== "string" && one.key !== undefined) {
      const node = keyed.get(one.key);
      return node && drawn.get(node).tag === one.tag ? node : null;
    }
    for (let at = place; at < loose.length; at++) {
      if (fits(loose[at], one)) {
        place = at + 1;
        return loose[at];
      }
    }
    return null;
  });
  const stay = new Set(kept);
  for (const node of [...parent.childNodes]) if (!stay.has(node)) node.remove();
  let next = parent.firstChild;
  wanted.forEach((one, i) => {
    const node = kept[i] ?? make(one, parent);
    if (node === next) next = next.nextSibling;
    else parent.insertBefore(node, next);
    update(node, one);
  });
}

function fits(node, one) {
  return typeof one === "string" ? node.nodeType === Node.TEXT_NODE : drawn.get(node)?.tag === one.tag;
}

function make(one, parent) {
  if (typeof one === "string") return document.createTextNode(one);
  const inSvg = one.tag === "svg" || (parent.namespaceURI === SVG && parent.localName !== "foreignObject");
  return inSvg ? document.createElementNS(SVG, one.tag) : document.createElement(one.tag);
}

function update(node, one) {
  if (typeof one === "string") {
    if (node.data !== one) node.data = one;
    return;
  }
  const before = drawn.get(node);
  drawn.set(node, one);
  setAttributes(node, before?.attributes ?? {}, one.attributes);
  for (const name of Object.keys(before?.style ?? {})) if (!(name in one.style)) node.style.removeProperty(name);
  for (const [name, value] of Object.entries(one.style)) {
    if (before?.style[name] !== value) node.style.setProperty(name, value);
  }
  for (const event of Object.keys(one.on)) {
    if (!before || !(event in before.on)) node.addEventListener(event, (e) => drawn.get(node)?.on[event]?.(e));
  }
  patchChildren(node, one.children);
  for (const name of LIVE)
    if (name in one.attributes) setLive(node, name, one.attributes[name], before?.attributes[name]);
  if (!before) one.created?.(node);
}

function setAttributes(node, before, wanted) {
  for (const name of Object.keys(before)) if (!(name in wanted) && !LIVE.has(name)) node.removeAttribute(name);
  for (const [name, value] of Object.entries(wanted)) {
    if (/^(on|srcdoc|style$)/i.test(name)) throw new Error(`'${name}' is no attribute of a description`);
    if (name === "href" && !LINKS.test(value)) throw new Error(`a link leads outside: ${value}`);
    if (LIVE.has(name) || before[name] === value) continue;
    if (value === null || value === undefined || value === false) node.removeAttribute(name);
    else node.setAttribute(name, value === true ? "" : value);
  }
}

/** What the user may have changed since is only set where the description changed. */
function setLive(node, name, value, before) {
  if (value !== before && node[name] !== value) node[name] = value ?? false;
}
