// Makes an element like another one, and leaves alone what is equal: focus, selection, open lists and scroll stay.
//
// An element with `draw` makes its own children: it is drawn by itself when it comes near the screen, or has been acted on.

export function drawn(made, draw) {
  made.draw = draw;
  return made;
}

export const redraw = (target) => mendChildren(target, target.draw(target));

export function mend(target, made) {
  if (target.nodeType !== Node.ELEMENT_NODE) {
    if (target.data !== made.data) target.data = made.data;
    return;
  }
  mendAttributes(target, made);
  if (made.draw) {
    target.draw = made.draw;
    if (target.isDrawn) redraw(target);
  } else mendChildren(target, [...made.childNodes]);
}

function mendAttributes(target, made) {
  for (const { name } of [...target.attributes]) {
    if (!made.hasAttribute(name) && name !== "style") target.removeAttribute(name);
  }
  for (const { name, value } of made.attributes) {
    if (target.getAttribute(name) !== value && name !== "style") target.setAttribute(name, value);
  }
  // The height of what is not drawn is its own.
  if (!made.draw && target.getAttribute("style") !== made.getAttribute("style")) mendStyle(target.style, made.style);
}

// The policy of the page forbids style as an attribute's text, not single properties (CSP 3, style-src-attr).
function mendStyle(target, made) {
  for (const name of [...target]) if (!made.getPropertyValue(name)) target.removeProperty(name);
  for (const name of made) target.setProperty(name, made.getPropertyValue(name));
}

function mendChildren(target, made) {
  const present = [...target.childNodes];
  made.forEach((one, at) => {
    const old = present[at];
    if (!old) target.append(one);
    else if (old.nodeName !== one.nodeName || !old.draw !== !one.draw) old.replaceWith(one);
    else mend(old, one);
  });
  for (const old of present.slice(made.length)) old.remove();
}
