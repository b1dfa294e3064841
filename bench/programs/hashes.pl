# Hashes, regular expressions, sorting and string building over a text; argument: rounds, text.
use strict;
use warnings;

my ($rounds, $path) = @ARGV;
open(my $in, '<', $path) or die "$path: $!";
my @lines = <$in>;
close($in);

my %count;
my ($vowel_runs, $numbers, $swapped) = (0, 0, 0);
for my $round (1 .. $rounds) {
    for my $line (@lines) {
        $count{lc $1}++ while $line =~ /([A-Za-z]+)/g;
        $vowel_runs++ while $line =~ /[aeiou]{2,}/g;
        $numbers += $1 while $line =~ /\b(\d+)\b/g;
        (my $copy = $line) =~ s/\b(\w+)\s+(\w+)\b/$2 $1/g;
        $swapped += length $copy;
    }
}
my @top = sort { $count{$b} <=> $count{$a} || $a cmp $b } keys %count;
printf "%d words, %d vowel runs, %d, %d\n", scalar(@top), $vowel_runs, $numbers, $swapped;
print join("\n", map { sprintf "%-12s %8d", $_, $count{$_} } @top[0 .. 19]), "\n";
