#!/usr/bin/env python3
"""Follows all links between pages, with their anchors.

    tests/links.py FOLDER...    the pages below each folder: Markdown and HTML

Links to other hosts are not followed: tests have traffic on the loopback interface only. Names of
items in pages of rustdoc, such as `crate::Limit`, are followed by rustdoc, and then here in HTML.
"""

import re
import sys
from functools import cache
from html import unescape
from pathlib import Path
from urllib.parse import unquote

# In the documentation of a trait of `tracing`, which rustdoc shows on our pages.
FOREIGN = "dispatcher#setting-the-default-subscriber"

# Of other projects, copied to be tested, or made by a build.
ELSEWHERE = {"former", "node_modules", "target", ".git"}


@cache
def anchors(page):
    text = page.read_text()
    if page.suffix == ".html":
        ids = re.findall(r"""\bid=["']?([^"'\s>]+)""", text)
        return {unquote(unescape(anchor)) for anchor in ids}
    headings = re.findall(r"^#{1,6} (.+)$", without_code(text), re.MULTILINE)
    names = [re.sub(r"[^a-z0-9_ -]", "", heading.lower()).replace(" ", "-") for heading in headings]
    # The second heading of a name has a number.
    return {f"{name}-{names[:at].count(name)}".removesuffix("-0") for at, name in enumerate(names)}


def without_code(text):
    return re.sub(r"^```.*?^```", "", text, flags=re.MULTILINE | re.DOTALL)


def links(page):
    text = page.read_text()
    if page.suffix == ".html":
        return (unescape(link) for link in re.findall(r"""\bhref=["']([^"']+)""", text))
    text = re.sub(r"`[^`\n]*`", "`", without_code(text))
    found = re.findall(r"\]\(([^)\s]+)\)|^\[[^\]]+\]: (\S+)$", text, re.MULTILINE)
    return (inline or reference for inline, reference in found)


def mistakes(page):
    for link in links(page):
        # Of other hosts, items of rustdoc, and a template in its scripts.
        if re.match(r"[a-z]+:|crate#", link) or "::" in link or "${" in link or link == FOREIGN:
            continue
        path, _, anchor = unquote(link).partition("#")
        target = page.parent / path if path else page
        if target.is_dir():
            target /= "index.html" if page.suffix == ".html" else ""
        if not target.exists():
            yield f"{page}: {link}: there is no {target}"
        elif anchor and "/src/" not in str(target) and target.suffix in (".html", ".md"):
            if anchor not in anchors(target.resolve()):
                yield f"{page}: {link}: expected one of the anchors of {target}"


def main(folders):
    pages = [
        page
        for folder in folders
        for kind in ("*.md", "*.html")
        for page in Path(folder).rglob(kind)
        if not ELSEWHERE & set(page.relative_to(folder).parts)
    ]
    found = sorted({mistake for page in pages for mistake in mistakes(page.resolve())})
    print(*found, sep="\n", end="\n" if found else "")
    followed = sum(1 for page in pages for _ in links(page))
    print(f"links: {followed} on {len(pages)} pages, {len(found)} wrong")
    # A page without links would mean that none was recognized.
    return 1 if found or not followed else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
