package org.falkirk;

import java.io.BufferedReader;
import java.io.IOException;
import java.io.InputStreamReader;
import java.io.PrintStream;
import java.nio.charset.StandardCharsets;
import java.util.Arrays;
import java.util.HexFormat;

/**
 * Encodes and decodes headers that Python draws: `tests/unit/java/test_header.py` compares both implementations.
 *
 * <p>A line {@code encode application incarnation stamp,numbers state} is answered with the bytes as hexadecimal digits. A
 * line {@code decode digits} is answered with the same parts, or with {@code refused}.
 */
public final class HeaderLines {
    private HeaderLines() {}

    public static void main(String[] arguments) throws IOException {
        BufferedReader lines = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.US_ASCII));
        PrintStream answers = new PrintStream(System.out, true, StandardCharsets.US_ASCII);
        for (String line = lines.readLine(); line != null; line = lines.readLine()) {
            String[] words = line.split(" ", -1);
            answers.println(words[0].equals("encode") ? encoded(words) : decoded(words[1]));
        }
    }

    private static String encoded(String[] words) {
        long[] numbers = Arrays.stream(words[3].split(",")).mapToLong(Long::parseLong).toArray();
        Header header = new Header(words[1], Long.parseLong(words[2]), Stamp.of(numbers), Long.parseLong(words[4]));
        return HexFormat.of().formatHex(header.encode());
    }

    private static String decoded(String digits) {
        try {
            Header header = Header.decode(HexFormat.of().parseHex(digits));
            String numbers = header.stamp().encode().replace('.', ',');
            return header.application() + " " + header.incarnation() + " " + numbers + " " + header.statePartition();
        } catch (IllegalArgumentException refused) {
            return "refused";
        }
    }
}
