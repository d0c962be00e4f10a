"""The acceptance document that a vendor and a customer sign: criteria, waivers, statement, and what they rest on.

criteria: the files that people write. shown: what shows each criterion; assess: the statement over all. model:
everything that the document says, with all numbers worked out. build, results, hardware: a Run as a model. figures,
heat: pictures as coordinates. evidence: reads raw outputs. page, book, folder: the document as HTML and XLSX, in one
folder. texts: its words, in each language.
"""
