package org.falkirk;

import java.io.BufferedReader;
import java.io.IOException;
import java.io.InputStreamReader;
import java.io.PrintStream;
import java.nio.charset.StandardCharsets;
import java.util.HexFormat;

/**
 * Decodes headers that Python draws: `tests/unit/java/test_header.py` compares both implementations.
 *
 * <p>A line of hexadecimal digits is answered with the parts {@code application incarnation stamp,numbers state}, or with
 * {@code refused}.
 */
public final class HeaderLines {
    private HeaderLines() {}

    public static void main(String[] arguments) throws IOException {
        BufferedReader lines = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.US_ASCII));
        PrintStream answers = new PrintStream(System.out, true, StandardCharsets.US_ASCII);
        for (String line = lines.readLine(); line != null; line = lines.readLine()) {
            answers.println(decoded(line));
        }
    }

    private static String decoded(String digits) {
        try {
            Header header = Header.decode(HexFormat.of().parseHex(digits));
            String numbers = header.stamp().toString().replace('.', ',');
            return header.application() + " " + header.incarnation() + " " + numbers + " " + header.statePartition();
        } catch (IllegalArgumentException refused) {
            return "refused";
        }
    }
}
