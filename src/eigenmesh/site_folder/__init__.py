"""A site in a folder of its owner: data, policy, key, approvals, results and log, in one place.

No coordinator names anything in it. `open_site` builds the site that a host guards.
"""

from eigenmesh.site_folder.folder import SiteFolder, open_site

__all__ = ["SiteFolder", "open_site"]
