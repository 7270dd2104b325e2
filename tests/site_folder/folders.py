"""Folders of sites for tests, written as their owners would."""

import numpy as np

from eigenmesh.site_folder import SiteFolder, open_site


def write_csv(path, ids, X, names, **others):
    header = ["patient", *names, *others]
    columns = [*np.asarray(X).T, *others.values()]
    lines = [",".join(header)]
    for i, own in enumerate(ids):
        lines.append(",".join([str(own), *(repr(float(column[i])) for column in columns)]))
    path.write_text("\n".join(lines) + "\n")
    return path


def drawn_rows(rng, n, d=4):
    centre = rng.normal(scale=3, size=(2, d))
    return centre[rng.integers(2, size=n)] + rng.normal(size=(n, d))


def make_folder(path, name, X, *, ids=None, policy='approve = "any"', settings="", **others):
    """A site's folder over rows X; `settings` are more lines of its site.toml."""
    path.mkdir()
    ids = [f"{name[0]}{i:03d}" for i in range(len(X))] if ids is None else ids
    write_csv(path / "ward.csv", ids, X, [f"x{j}" for j in range(X.shape[1])], **others)
    (path / "site.toml").write_text(
        f'name = "{name}"\ndata = "ward.csv"\nid_column = "patient"\n{settings}\n'
    )
    (path / "policy.toml").write_text(policy)
    return SiteFolder(path)


def three_folders(
    path, *, seed=0, policy='approve = "any"', n=(40, 50, 45), are_strangers=False, **others
):
    """North, south and west, whose owners have told each other their public keys, or not."""
    rng = np.random.default_rng(seed)
    names = ("north", "south", "west")
    folders = [
        make_folder(path / name, name, drawn_rows(rng, rows), policy=policy, **others)
        for name, rows in zip(names, n, strict=True)
    ]
    if not are_strangers:
        introduce(folders)
    return folders


def introduce(folders):
    from eigenmesh.runtime.masks import identity

    keys = {f.settings.name: identity(open_site(f.path).identity).hex() for f in folders}
    for folder in folders:
        with folder.settings_file.open("a") as file:
            others = [name for name in keys if name != folder.settings.name]
            file.write("[peers]\n" + "".join(f'{name} = "{keys[name]}"\n' for name in others))
