# Word counts, line lengths and a little arithmetic over a text.
{
  for (i = 1; i <= NF; i++) {
    word = tolower($i)
    gsub(/[^a-z]/, "", word)
    if (word != "") count[word]++
    letters[substr(word, 1, 1)] += length(word)
  }
  total += length($0) * (NR % 7)
  if (match($0, /[0-9]+/)) sum += substr($0, RSTART, RLENGTH)
}
END {
  n = asorti(count, names)
  for (i = 1; i <= n; i++) checksum = (checksum * 31 + count[names[i]]) % 1000003
  for (l in letters) all += letters[l]
  print NR, n, checksum, total, sum, all
}
