// The page is yet to come.
