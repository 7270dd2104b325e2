"""What several methods run before or after their own work, on a site's store."""
