"""Reports: one HTML file each, that opens from disk with no network, on a phone and on paper."""
