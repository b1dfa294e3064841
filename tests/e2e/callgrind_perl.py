#!/usr/bin/env python3
"""perl with fixed hash seeds: every instruction as often as callgrind says."""
import os

import against_callgrind as against

program = """
my %h; my $s = 0;
for my $i (1 .. 400) { my $k = "k" . ($i * 7919 % 257); $h{$k} .= $i; $s += length $h{$k}; }
my $t = join ",", map { "$_=$h{$_}" } sort keys %h;
my $n = () = $t =~ /(\\d)\\1/g; $t =~ s/k(\\d+)=/<$1>/g;
print "$s $n ", length $t, "\\n";
"""
seeds = {"PERL_HASH_SEED": "0", "PERL_PERTURB_KEYS": "0"}
against.check([against.need("perl"), "-e", program], env=seeds)
