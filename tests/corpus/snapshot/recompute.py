"""Recomputes the digest of a snapshot, from the words in the schema of run.json: MANIFEST FOLDER."""
import base64, hashlib, json, os, sys
manifest, root = json.load(open(sys.argv[1])), os.fsencode(sys.argv[2])
def raw(value):
    return base64.b64decode(value["base64"]) if isinstance(value, dict) else value.encode()
found = {}
for folder, names, files in os.walk(root):
    for name in names + files:
        path = os.path.join(folder, name)
        if os.path.islink(path):
            mode, content = b"120000", os.readlink(path)
        elif os.path.isdir(path):
            continue
        else:
            mode, content = (b"100755" if os.stat(path).st_mode & 0o100 else b"100644"), open(path, "rb").read()
        found[os.path.relpath(path, root)] = (mode, len(content), hashlib.sha256(content).hexdigest())
entries = {raw(e["path"]): (e["mode"].encode(), e["size"], e["sha256"]) for e in manifest["entries"]}
assert entries == found, (entries, found)
assert manifest["files"] == len(found) == len(manifest["entries"])
digest = hashlib.sha256(b"crashlab.snapshot/1\n")
for path in sorted(found):
    digest.update(found[path][0] + b" " + found[path][2].encode() + b" " + path + b"\0")
print("sha256:" + digest.hexdigest(), end="")
