package org.falkirk;

import java.util.Map;
import java.util.TreeMap;

/** The list of files. */
public final class ListingFilesTest {
    public void theListNamesEachFileWithItsSize() {
        Map<String, Long> sizes = new TreeMap<>();
        Check.equal(ListingFiles.json(sizes), "{\"files\": {}}");
        sizes.put("part-0.parquet", 7L);
        sizes.put("kind=\"a\\b\"/part-1.parquet", 8L);
        Check.equal(
                ListingFiles.json(sizes),
                "{\"files\": {\"kind=\\\"a\\\\b\\\"/part-1.parquet\": 8, \"part-0.parquet\": 7}}");
    }
}
