"""Whose key is whose: the public keys by which a site knows the others."""

from __future__ import annotations

from eigenmesh.errors import PolicyRefusal, StepRefused
from eigenmesh.runtime.masks import identity
from eigenmesh.runtime.site import Site


def require_known(site: Site, name: str, key: bytes) -> None:
    """Refuse another key than the site has of this name.

    In one trust domain the first that is seen is taken for its own; between organisations only if
    the site's owner says so (`Site.first_keys`), since a coordinator could have made it up.
    """
    own_key = identity(site.identity) if name == site.name else site.peers.get(name)
    if own_key is None and site.trust == "organisations" and not site.first_keys:
        raise PolicyRefusal(
            f"it refuses what {name!r} has signed: its key is not known at this site; its owner "
            f"adds it to the site's peers",
            rule="peers",
        )
    if own_key is None:
        site.peers[name] = own_key = key
    if own_key != key:
        raise StepRefused(f"there is another key of {name!r} than this site knows")
