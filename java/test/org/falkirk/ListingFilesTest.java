package org.falkirk;

import java.util.Map;
import java.util.TreeMap;

/** The list of files, and the folders whose files are listed. */
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

    public void onlyFoldersInTheHomeCount() {
        Check.equal(ListingFiles.isIn("s3a://b/shop", "s3a://b/shop/regions/x"), true);
        Check.equal(ListingFiles.isIn("s3a://b/shop", "s3a://b/shop2/x"), false);
        Check.equal(ListingFiles.isIn("s3a://b/shop", "/tmp/out"), false);
        Check.equal(ListingFiles.isIn(null, "s3a://b/shop/x"), false);
        Check.equal(ListingFiles.isIn("s3a://b/shop", null), false);
    }
}
