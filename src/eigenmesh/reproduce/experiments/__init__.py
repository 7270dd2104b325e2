"""Problems, and the methods that are compared on them; what they measure is named in `style`."""
